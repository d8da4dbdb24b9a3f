#include "text/tokenizers/byte_symbols.hpp"

#include <array>

#include "text/tokenizers/unicode_classes.hpp"
#include "text/utf8.hpp"

namespace espalier::app {
namespace {

struct Tables {
  std::array<std::uint16_t, 256> symbol{};
  std::array<std::int16_t, 324> byte{};  // by symbol; -1: none. The last one is U+0143.
};

constexpr Tables make_tables() {
  Tables tables;
  for (auto& byte : tables.byte) byte = -1;
  std::uint16_t next = 256;
  for (std::uint16_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const std::uint16_t symbol = prints ? byte : next++;
    tables.symbol[byte] = symbol;
    tables.byte[symbol] = static_cast<std::int16_t>(byte);
  }
  return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t symbol_of_byte(unsigned char byte) { return kTables.symbol[byte]; }

std::optional<std::string> bytes_of_symbols(std::string_view token) {
  std::string bytes;
  const char* at = token.data();
  const char* end = at + token.size();
  while (at < end) {
    const Character next = read_character(at, end);
    if (next.code >= kTables.byte.size() || kTables.byte[next.code] < 0) return std::nullopt;
    bytes += static_cast<char>(kTables.byte[next.code]);
    at += next.length;
  }
  return bytes;
}

std::string symbols_of_bytes(std::string_view bytes) {
  std::string symbols;
  for (const char byte : bytes) append_utf8(symbol_of_byte(static_cast<unsigned char>(byte)), symbols);
  return symbols;
}

}  // namespace espalier::app
