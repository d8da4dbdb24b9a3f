#include "text/byte_tokenizer.hpp"

namespace espalier::app {

void ByteTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
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
