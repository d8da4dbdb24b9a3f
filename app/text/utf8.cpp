#include "text/utf8.hpp"

#include <cstring>

namespace espalier::app {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// What starts at a byte: a whole character, a part of one that the end of the text cuts off, or something invalid.
struct Sequence {
  enum class Kind : std::uint8_t { whole, cut, invalid } kind;
  std::size_t length;  ///< bytes; of something invalid: its maximal part, at least 1
};

Sequence sequence_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[at + k]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Sequence::Kind::whole, 1};
  std::size_t length = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Sequence::Kind::invalid, 1};
  }
  for (std::size_t k = 1; k < length; ++k) {
    if (at + k == text.size()) return {Sequence::Kind::cut, k};
    if (byte(k) < low || byte(k) > high) return {Sequence::Kind::invalid, k};
    low = 0x80;
    high = 0xBF;
  }
  return {Sequence::Kind::whole, length};
}

/// Skips ASCII eight bytes at a time.
std::size_t skip_ascii(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t block = 0;
    std::memcpy(&block, text.data() + at, 8);
    if ((block & 0x8080808080808080u) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t at = skip_ascii(text, 0);
  while (at < text.size()) {
    const Sequence sequence = sequence_at(text, at);
    if (sequence.kind != Sequence::Kind::whole) return at;
    at += sequence.length;
    if (sequence.length == 1) at = skip_ascii(text, at);
  }
  return std::string_view::npos;
}

std::int64_t append_repaired_utf8(std::string_view text, std::string& out) {
  std::int64_t replaced = 0;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t bad = find_invalid_utf8(text.substr(start));
    if (bad == std::string_view::npos) break;
    out.append(text.substr(start, bad));
    out.append(kReplacement);
    ++replaced;
    start += bad + sequence_at(text, start + bad).length;
  }
  out.append(text.substr(start));
  return replaced;
}

void append_utf8(std::uint32_t code_point, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string Utf8Stream::push(std::string_view piece) {
  pending_.append(piece);
  std::size_t keep = 0;  // bytes at the end that may still become a character
  for (std::size_t back = 1; back <= 3 && back <= pending_.size(); ++back) {
    const std::size_t at = pending_.size() - back;
    if ((static_cast<unsigned char>(pending_[at]) & 0xC0) == 0x80) continue;
    const Sequence last = sequence_at(pending_, at);
    if (last.kind == Sequence::Kind::cut && last.length == back) keep = back;
    break;
  }
  std::string out;
  append_repaired_utf8(std::string_view(pending_).substr(0, pending_.size() - keep), out);
  pending_.erase(0, pending_.size() - keep);
  return out;
}

std::string Utf8Stream::finish() {
  std::string out;
  append_repaired_utf8(pending_, out);
  pending_.clear();
  return out;
}

}  // namespace espalier::app
