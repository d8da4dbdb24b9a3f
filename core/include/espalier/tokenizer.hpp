#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/export.hpp"

namespace espalier {

/// Text ↔ ids. Thread-safe: all calls are const.
class ESPALIER_API Tokenizer {
 public:
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer();

  /// Ids are in [0, vocab_size()).
  virtual std::int64_t vocab_size() const = 0;
  /// End-of-document id, or -1 when there is none.
  virtual std::int32_t end_of_document() const = 0;
  /// Appends the ids of `text` (valid UTF-8) to `ids`.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  /// Special tokens are left out; bytes that are not UTF-8 come back as they are.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Name and content in short, kept in checkpoints and compared on load: "bytes", "tokenizer.json:9f3a…".
  virtual std::string fingerprint() const = 0;

 protected:
  Tokenizer() = default;
};

}  // namespace espalier
