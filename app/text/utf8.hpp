#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::app {

/// Offset of the first byte that is not part of valid UTF-8 (overlong forms, surrogates and code points above U+10FFFF
/// are not valid), or npos. Source: Unicode 15, table 3-7.
std::size_t find_invalid_utf8(std::string_view text);

/// Replaces every maximal invalid part by U+FFFD, as the Unicode standard advises (section 3.9), and appends to `out`.
/// @returns how many parts were replaced.
std::int64_t append_repaired_utf8(std::string_view text, std::string& out);

/// Appends a code point below U+110000 that is no surrogate.
void append_utf8(std::uint32_t code_point, std::string& out);

/// Turns pieces that may end within a character into pieces that do not: what a stream of byte tokens needs before a
/// terminal sees it. Invalid bytes become U+FFFD.
class Utf8Stream {
 public:
  /// Adds a piece; returns what is complete now.
  std::string push(std::string_view piece);
  /// What is left at the end, repaired.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace espalier::app
