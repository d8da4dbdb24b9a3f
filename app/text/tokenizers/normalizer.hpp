#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::app {

/// Normal forms of Unicode (15, from utf8proc), applied one after another. Bytes that are not UTF-8 stay as they are.
class Normalizer {
 public:
  enum class Form : std::uint8_t { nfc, nfd, nfkc, nfkd };

  void add(Form form) { forms_.push_back(form); }
  bool empty() const { return forms_.empty(); }

  /// @throws IoError when a text is too long for utf8proc or memory.
  std::string apply(std::string_view text) const;

 private:
  std::vector<Form> forms_;
};

}  // namespace espalier::app
