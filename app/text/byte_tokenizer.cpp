#include "text/byte_tokenizer.hpp"

#include <algorithm>

namespace espalier::app {

void ByteTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::size_t start = ids.size();
  ids.resize(start + text.size());
  std::ranges::transform(text, ids.begin() + static_cast<std::ptrdiff_t>(start),
                         [](char byte) { return static_cast<std::int32_t>(static_cast<unsigned char>(byte)); });
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < 256) text += static_cast<char>(id);
  }
  return text;
}

}  // namespace espalier::app
