#include "train/memory_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "checkpoint/writer.hpp"
#include "telemetry/rank_text.hpp"

namespace espalier::app {
namespace {

constexpr std::size_t kNumbers = 2 * RankMemory::kPurposes.size() + 1;
using Numbers = std::array<std::int64_t, kNumbers>;

Numbers numbers_of(const RankMemory& memory) {
  Numbers numbers{};
  std::ranges::copy(memory.measured, numbers.begin());
  std::ranges::copy(memory.computed, numbers.begin() + RankMemory::kPurposes.size());
  numbers.back() = memory.other;
  return numbers;
}

RankMemory memory_of(const Numbers& numbers) {
  RankMemory memory;
  std::copy_n(numbers.begin(), RankMemory::kPurposes.size(), memory.measured.begin());
  std::copy_n(numbers.begin() + RankMemory::kPurposes.size(), RankMemory::kPurposes.size(), memory.computed.begin());
  memory.other = numbers.back();
  return memory;
}

std::string mebibytes(std::int64_t bytes) { return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::string text_of(const RankMemory& memory) {
  std::string text;
  bool as_computed = true;
  for (std::size_t i = 0; i < RankMemory::kPurposes.size(); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", RankMemory::kPurposes[i], mebibytes(memory.measured[i]));
    if (memory.measured[i] == memory.computed[i]) continue;
    as_computed = false;
    text += fmt::format(" ({} bytes, computed {})", memory.measured[i], memory.computed[i]);
  }
  return text + fmt::format(", other {}; in all {} at the peak{}", mebibytes(memory.other), mebibytes(memory.total()),
                            as_computed ? ", each as computed" : "");
}

}  // namespace

std::int64_t RankMemory::total() const { return std::accumulate(measured.begin(), measured.end(), other); }

RankMemory measure_memory(const Device& device, const StateBytes& state, std::size_t activations) {
  RankMemory memory;
  const std::array computed = {state.weights, state.gradients, state.optimizer, state.scratch, activations};
  for (std::size_t i = 0; i < computed.size(); ++i) memory.computed[i] = static_cast<std::int64_t>(computed[i]);
  for (const MemoryUse& use : device.memory_use()) {
    if (use.purpose == kSnapshotMemory) continue;  // of the host
    const auto found = std::ranges::find(RankMemory::kPurposes, use.purpose);
    const auto peak = static_cast<std::int64_t>(use.peak);
    if (found == RankMemory::kPurposes.end()) {
      memory.other += peak;
    } else {
      memory.measured[static_cast<std::size_t>(found - RankMemory::kPurposes.begin())] = peak;
    }
  }
  return memory;
}

std::vector<std::string> memory_lines(Communicator& world, const RankMemory& own, Stream& stream) {
  Numbers mine = numbers_of(own);
  std::vector<Numbers> all(static_cast<std::size_t>(world.size()));
  world.run({Verb::all_gather, View::vector(mine.data(), std::ssize(mine), DType::i64),
             View::vector(all.data(), static_cast<std::int64_t>(kNumbers * all.size()), DType::i64),
             Reduce::sum_rank_order, 0, 0},
            stream);
  std::map<Numbers, std::vector<int>> alike;
  int most = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Numbers& numbers = all[static_cast<std::size_t>(rank)];
    alike[numbers].push_back(rank);
    if (memory_of(numbers).total() > memory_of(all[static_cast<std::size_t>(most)]).total()) most = rank;
  }
  std::vector<std::pair<std::vector<int>, std::string>> by_rank;
  by_rank.reserve(alike.size());
  for (const auto& [numbers, ranks] : alike) by_rank.emplace_back(ranks, text_of(memory_of(numbers)));
  std::ranges::sort(by_rank);
  std::vector<std::string> lines;
  lines.reserve(by_rank.size() + 1);
  for (const auto& [ranks, text] : by_rank) lines.push_back(text_of_ranks(ranks) + ": " + text);
  if (lines.size() > 1) {
    lines.push_back(fmt::format("the most is {} on rank {}",
                                mebibytes(memory_of(all[static_cast<std::size_t>(most)]).total()), most));
  }
  return lines;
}

}  // namespace espalier::app
