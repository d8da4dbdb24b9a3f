#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::app {

/// Byte-level vocabularies write each byte as one printable character: those of Latin-1 that print stand for
/// themselves, the other 68 bytes are U+0100, U+0101, … in order ("Ġ" is a space). Source: GPT-2's encoder.py,
/// bytes_to_unicode.

/// The character of a byte.
std::uint32_t symbol_of_byte(unsigned char byte);

/// The bytes that a token written in symbols stands for; nothing when a character is no symbol.
std::optional<std::string> bytes_of_symbols(std::string_view token);

/// The other way round.
std::string symbols_of_bytes(std::string_view bytes);

}  // namespace espalier::app
