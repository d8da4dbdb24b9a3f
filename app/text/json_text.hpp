#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::app {

/// Why a line of a JSONL file gives no document.
enum class LineFault : std::uint8_t {
  none,
  broken_json,     ///< no JSON (RFC 8259) at all
  no_object,       ///< JSON, but a string, number, array, …
  no_key,          ///< an object without the key
  no_string,       ///< the key's value is no string
  bad_characters,  ///< invalid UTF-8, or half of a surrogate pair
  too_long,        ///< more bytes than DocumentRules::longest
  no_language,     ///< nothing under the language's key that a file could be named after
};
inline constexpr int kLineFaults = 8;

/// "not JSON", "not an object", …: what a report counts.
std::string describe(LineFault fault, std::string_view key);

/// Whether files may be named after it: 1 to 64 letters, digits, "-" or "_".
bool is_language_name(std::string_view text);

struct TextField {
  LineFault fault = LineFault::none;
  std::size_t at = 0;         ///< byte of the line where it went wrong
  const char* what = "";      ///< of broken_json: what was expected
  std::int64_t replaced = 0;  ///< halves of surrogate pairs that became U+FFFD
};

/// Reads the string under `key` of the object in `line` into `text`; a key that comes twice counts by its last value.
/// The whole line is checked, nothing but the string is stored: no tree is built.
/// @param line  valid UTF-8.
/// @param repair  whether lone surrogates are replaced (and counted) rather than a fault.
TextField read_text_field(std::string_view line, std::string_view key, bool repair, std::string& text);

/// The same, and the string under a second key; a line without it, or with one that is_language_name() refuses, is a
/// fault (no_language).
TextField read_text_and_language(std::string_view line, std::string_view key, std::string_view language_key,
                                 bool repair, std::string& text, std::string& language);

}  // namespace espalier::app
