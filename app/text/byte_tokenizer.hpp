#pragma once

#include "espalier/tokenizer.hpp"

namespace espalier::app {

/// Every byte is a token, so any text of any language round-trips: ids 0 … 255 are bytes, 256 ends a document, 257
/// pads.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t kEndOfDocument = 256;
  static constexpr std::int32_t kPadding = 257;
  static constexpr std::int64_t kVocab = 258;

  std::int64_t vocab_size() const override { return kVocab; }
  std::int32_t end_of_document() const override { return kEndOfDocument; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string fingerprint() const override { return "bytes"; }
};

}  // namespace espalier::app
