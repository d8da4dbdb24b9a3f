#include "text/json_text.hpp"

#include <algorithm>
#include <array>
#include <optional>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "text/utf8.hpp"

namespace espalier::app {
namespace {

constexpr int kDeepest = 256;  // nested arrays and objects; each is a call on the stack

/// Thrown inside this file only, and rarely: at most once a line.
struct Broken {
  std::size_t at;
  const char* what;
};

constexpr std::array<bool, 256> make_plain() {
  std::array<bool, 256> plain{};
  for (int c = 0x20; c < 256; ++c) plain[static_cast<std::size_t>(c)] = c != '"' && c != '\\';
  return plain;
}
constexpr std::array<bool, 256> kPlain = make_plain();  // what a string holds as it is

/// Position of the first byte at or behind `at` that a string does not hold as it is, or the line's size.
std::size_t plain_end(std::string_view line, std::size_t at) {
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), last_control = _mm_set1_epi8(0x1F);
  for (; at + 16 <= line.size(); at += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(line.data() + at));
    const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(block, last_control), block);
    const __m128i special =
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash)), control);
    if (const int mask = _mm_movemask_epi8(special); mask != 0)
      return at + static_cast<std::size_t>(__builtin_ctz(static_cast<unsigned>(mask)));
  }
#endif
  while (at < line.size() && kPlain[static_cast<unsigned char>(line[at])]) ++at;
  return at;
}

class Scanner {
 public:
  Scanner(std::string_view line, std::string_view key, bool repair, std::string& text)
      : line_(line), key_(key), repair_(repair), text_(text) {}

  /// A second string that is wanted; "" when it is not there, or no string.
  void also(std::string_view key, std::string& value) {
    second_key_ = key;
    second_ = &value;
  }

  TextField run() {
    skip_space();
    if (peek() != '{') {
      value(0);
      end_of_line();
      result_.fault = LineFault::no_object;
      return result_;
    }
    result_.fault = LineFault::no_key;
    object(0, true);
    end_of_line();
    return result_;
  }

 private:
  int peek() const { return at_ < line_.size() ? static_cast<unsigned char>(line_[at_]) : -1; }
  [[noreturn]] void broken(const char* what) const { throw Broken{at_, what}; }

  void skip_space() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r' || line_[at_] == '\n'))
      ++at_;
  }
  void end_of_line() {
    skip_space();
    if (at_ != line_.size()) broken("expected the end of the line");
  }
  void expect(char wanted, const char* what) {
    if (peek() != wanted) broken(what);
    ++at_;
  }

  void value(int depth) {
    switch (peek()) {
      case '{':
        return object(depth + 1, false);
      case '[':
        return array(depth + 1);
      case '"':
        return string(nullptr);
      case 't':
        return literal("true");
      case 'f':
        return literal("false");
      case 'n':
        return literal("null");
      default:
        return number();
    }
  }

  void literal(std::string_view word) {
    if (line_.substr(at_, word.size()) != word) broken("expected a value");
    at_ += word.size();
  }

  void digits(const char* what) {
    if (peek() < '0' || peek() > '9') broken(what);
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  void number() {
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
    } else {
      digits("expected a value");
    }
    if (peek() == '.') {
      ++at_;
      digits("expected a digit");
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits("expected a digit");
    }
  }

  void array(int depth) {
    if (depth > kDeepest) broken("nested too deeply");
    ++at_;
    skip_space();
    if (peek() == ']') {
      ++at_;
      return;
    }
    for (;;) {
      skip_space();
      value(depth);
      skip_space();
      if (peek() == ']') break;
      expect(',', "expected , or ]");
    }
    ++at_;
  }

  void object(int depth, bool outermost) {
    if (depth > kDeepest) broken("nested too deeply");
    ++at_;
    skip_space();
    if (peek() == '}') {
      ++at_;
      return;
    }
    for (;;) {
      skip_space();
      if (peek() != '"') broken("expected a key in quotes");
      name_.clear();
      string(outermost ? &name_ : nullptr);
      skip_space();
      expect(':', "expected :");
      skip_space();
      if (outermost && second_ != nullptr && name_ == second_key_) {
        second_field();
      } else if (outermost && name_ == key_) {
        field();
      } else {
        value(depth);
      }
      skip_space();
      if (peek() == '}') break;
      expect(',', "expected , or }");
    }
    ++at_;
  }

  void field() {
    text_.clear();
    result_ = {};
    if (peek() != '"') {
      result_ = {LineFault::no_string, at_, "", 0};
      return value(0);
    }
    in_field_ = true;
    string(&text_);
    in_field_ = false;
  }

  void second_field() {
    second_->clear();
    if (peek() != '"') return value(0);
    string(second_);
  }

  /// @param out  where the content goes; null: it is only checked.
  void string(std::string* out) {
    ++at_;
    for (;;) {
      const std::size_t start = at_;
      at_ = plain_end(line_, at_);
      if (out != nullptr) out->append(line_, start, at_ - start);
      const int next = peek();
      if (next < 0) broken("expected the end of a string");
      if (next < 0x20) broken("control characters must be escaped in a string");
      ++at_;
      if (next == '"') return;
      escape(out);
    }
  }

  void escape(std::string* out) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const int name = peek();
    if (name == 'u') return unicode_escape(out);
    const std::size_t which = name < 0 ? std::string_view::npos : kNames.find(static_cast<char>(name));
    if (which == std::string_view::npos) broken("unknown escape in a string");
    ++at_;
    if (out != nullptr) *out += kMeanings[which];
  }

  /// The four digits after "\u"; at_ stands on the u.
  std::uint32_t code_unit() {
    std::uint32_t unit = 0;
    for (int k = 0; k < 4; ++k) {
      ++at_;
      const int c = peek();
      int digit = -1;
      if (c >= '0' && c <= '9') digit = c - '0';
      if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
      if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
      if (digit < 0) broken("expected four hexadecimal digits");
      unit = unit * 16 + static_cast<std::uint32_t>(digit);
    }
    ++at_;
    return unit;
  }

  void unicode_escape(std::string* out) {
    const std::size_t start = at_ - 1;
    std::uint32_t unit = code_unit();
    if (unit >= 0xD800 && unit < 0xDC00 && line_.substr(at_, 2) == "\\u") {
      const std::size_t second = at_++;
      const std::uint32_t low = code_unit();
      if (low >= 0xDC00 && low < 0xE000) {
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
      } else {
        at_ = second;  // the first one stands alone; the second is read again by itself
      }
    }
    if (unit >= 0xD800 && unit < 0xE000) {
      if (in_field_ && !repair_) {
        if (result_.fault == LineFault::none) result_ = {LineFault::bad_characters, start, "", 0};
      } else if (in_field_) {
        ++result_.replaced;
      }
      unit = 0xFFFD;
    }
    if (out != nullptr) append_utf8(unit, *out);
  }

  std::string_view line_, key_;
  bool repair_;
  bool in_field_ = false;
  std::string& text_;
  std::string_view second_key_;
  std::string* second_ = nullptr;
  std::string name_;
  std::size_t at_ = 0;
  TextField result_;
};

}  // namespace

std::string describe(LineFault fault, std::string_view key) {
  switch (fault) {
    case LineFault::none:
      return "good";
    case LineFault::broken_json:
      return "not JSON";
    case LineFault::no_object:
      return "not an object";
    case LineFault::no_key:
      return "without \"" + std::string(key) + "\"";
    case LineFault::no_string:
      return "\"" + std::string(key) + "\" is no string";
    case LineFault::bad_characters:
      return "invalid characters";
    case LineFault::too_long:
      return "too long";
    case LineFault::no_language:
      return "without a language";
  }
  return "";
}

bool is_language_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, fits);
}

TextField read_text_field(std::string_view line, std::string_view key, bool repair, std::string& text) {
  text.clear();
  try {
    return Scanner(line, key, repair, text).run();
  } catch (const Broken& broken) {
    return {LineFault::broken_json, broken.at, broken.what, 0};
  }
}

TextField read_text_and_language(std::string_view line, std::string_view key, std::string_view language_key,
                                 bool repair, std::string& text, std::string& language) {
  text.clear();
  language.clear();
  TextField field;
  try {
    Scanner scanner(line, key, repair, text);
    scanner.also(language_key, language);
    field = scanner.run();
  } catch (const Broken& broken) {
    return {LineFault::broken_json, broken.at, broken.what, 0};
  }
  if (field.fault == LineFault::none && !is_language_name(language)) field.fault = LineFault::no_language;
  return field;
}

}  // namespace espalier::app
