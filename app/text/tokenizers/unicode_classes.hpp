#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::app {

/// Classes of characters, as bits. Unicode 16: the version whose letters and numbers PyPI tokenizers 0.23 has.
inline constexpr std::uint8_t kLetter = 1;     ///< general category L
inline constexpr std::uint8_t kNumber = 2;     ///< general category N
inline constexpr std::uint8_t kSpace = 4;      ///< White_Space
inline constexpr std::uint8_t kWord = 8;       ///< alphabetic, marks, decimal numbers, connecting punctuation, joiners
inline constexpr std::uint8_t kBloomGap = 16;  ///< what BLOOM's split pattern never matches but for a leading space

/// The classes of each code point below U+110000: 1.1 MB, made on first use, of which a text touches a few pages.
const std::uint8_t* unicode_classes();

/// One character of UTF-8, or one byte that is not part of any.
struct Character {
  std::uint32_t code = 0;    ///< kNoCharacter for such a byte
  std::uint32_t length = 1;  ///< bytes
};
inline constexpr std::uint32_t kNoCharacter = 0xFFFFFFFF;

/// Reads the character at `at`, which is below `end`. Bytes that are not UTF-8 are taken one by one, so that scanners
/// get through any input; they need not agree on how long an invalid sequence is.
inline Character read_character(const char* at, const char* end) {
  const auto byte = [&](std::size_t k) { return static_cast<std::uint32_t>(static_cast<unsigned char>(at[k])); };
  const auto tail = [&](std::size_t k) { return (byte(k) & 0xC0) == 0x80; };
  const std::uint32_t lead = byte(0);
  const auto left = static_cast<std::size_t>(end - at);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) {
    if (lead < 0xC2 || left < 2 || !tail(1)) return {kNoCharacter, 1};
    return {((lead & 0x1F) << 6) | (byte(1) & 0x3F), 2};
  }
  if (lead < 0xF0) {
    if (left < 3 || !tail(1) || !tail(2)) return {kNoCharacter, 1};
    const std::uint32_t code = ((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F);
    if (code < 0x800 || (code >= 0xD800 && code < 0xE000)) return {kNoCharacter, 1};
    return {code, 3};
  }
  if (lead > 0xF4 || left < 4 || !tail(1) || !tail(2) || !tail(3)) return {kNoCharacter, 1};
  const std::uint32_t code =
      ((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F);
  if (code < 0x10000 || code > 0x10FFFF) return {kNoCharacter, 1};
  return {code, 4};
}

/// Classes of a character; none of an invalid byte.
inline std::uint8_t classes_of(const Character& character, const std::uint8_t* classes) {
  return character.code == kNoCharacter ? std::uint8_t{0} : classes[character.code];
}

}  // namespace espalier::app
