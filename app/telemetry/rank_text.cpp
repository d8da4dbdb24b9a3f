#include "telemetry/rank_text.hpp"

#include <cstddef>

namespace espalier::app {

std::string text_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace espalier::app
