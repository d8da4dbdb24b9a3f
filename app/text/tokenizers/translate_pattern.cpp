#include <string>
#include <string_view>
#include <utility>

#include "espalier/error.hpp"
#include "text/tokenizers/pattern.hpp"
#include "text/tokenizers/unicode_classes.hpp"

namespace espalier::app {
namespace {

// What Oniguruma takes for \s \d \w \h in UTF-8, as members of a class of PCRE2's: its own \s has U+180E, its \w no
// marks.
constexpr std::string_view kSpaces =
    R"(\t-\r \x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kDigits = R"(\p{Nd})";
constexpr std::string_view kWords =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Goes through the pattern once and copies what means the same; everything else is translated or refused.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        char_class();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        interval();
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::size_t start, std::size_t length, std::string_view why) const {
    throw ConfigError("split pattern \"" + std::string(pattern_) + "\": \"" +
                      std::string(pattern_.substr(start, length)) + "\" at byte " + std::to_string(start) + " " +
                      std::string(why));
  }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }

  /// The members that \s and its like stand for, or "" when the letter is none of them.
  static std::string_view members_of(char letter) {
    switch (letter) {
      case 's':
        return kSpaces;
      case 'd':
        return kDigits;
      case 'w':
        return kWords;
      case 'h':
        return kHexDigits;
      default:
        return "";
    }
  }

  /// An escape that both read alike, copied: a character, \x.., \x{..}, \u...., \p{..}. at_ stands on the backslash.
  void common_escape(std::string& out) {
    const std::size_t start = at_;
    const char letter = peek(1);
    if (at_ + 1 >= pattern_.size()) refuse(start, 1, "ends the pattern");
    if (letter == 'p' || letter == 'P') return property(out);
    if (letter == 'x' || letter == 'u') return code_point(out);
    if (std::string_view("tnrfvae").find(letter) != std::string_view::npos) {
      out += letter == 'v' ? std::string("\\x0B") : std::string{'\\', letter};  // PCRE2's \v is a class
      at_ += 2;
      return;
    }
    if (is_letter(letter) || is_digit(letter)) refuse(start, 2, "is not supported here");
    const Character escaped = read_character(pattern_.data() + at_ + 1, pattern_.data() + pattern_.size());
    out += escaped.length == 1 ? "\\" : "";
    out += pattern_.substr(at_ + 1, escaped.length);
    at_ += 1 + escaped.length;
  }

  void property(std::string& out) {
    const std::size_t start = at_;
    const std::size_t close = pattern_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) refuse(start, 3, "is not supported: write \\p{Name}");
    const std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    for (const char c : name) {
      if (!is_letter(c) && c != '_' && c != '^') refuse(start, close + 1 - start, "is not supported here");
    }
    // Categories and scripts have the same names; the POSIX names (Alpha, Digit) are Oniguruma's own.
    out += pattern_.substr(start, close + 1 - start);
    at_ = close + 1;
  }

  void code_point(std::string& out) {
    const std::size_t start = at_;
    std::string digits;
    const bool unicode = peek(1) == 'u';
    at_ += 2;
    if (!unicode && peek() == '{') {
      for (++at_; at_ < pattern_.size() && peek() != '}'; ++at_) digits += peek();
      ++at_;
    } else {
      const std::size_t most = unicode ? 4 : 2;
      for (; digits.size() < most && at_ < pattern_.size(); ++at_) {
        const char c = peek();
        if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) break;
        digits += c;
      }
      if (unicode && digits.size() < 4) refuse(start, at_ - start, "is no character");
    }
    if (digits.empty() || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
      refuse(start, std::min(at_, pattern_.size()) - start, "is no character");
    }
    // Two digits are a byte of UTF-8 to Oniguruma, a code point to PCRE2: the same below 80.
    if (!unicode && pattern_[start + 2] != '{' && std::stoul(digits, nullptr, 16) >= 0x80) {
      refuse(start, at_ - start, "is a byte, not a character: write \\x{...}");
    }
    out += "\\x{" + digits + "}";
  }

  void escape() {
    const char letter = peek(1);
    const char lower = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    if (const std::string_view members = members_of(lower); !members.empty()) {
      out_ += letter == lower ? "[" : "[^";
      out_ += members;
      out_ += ']';
      at_ += 2;
      return;
    }
    if (letter == 'b' || letter == 'B' || letter == 'A' || letter == 'z') {
      if (lower == 'b') refuse(at_, 2, "is not supported: what a word is differs between the engines");
      out_ += {'\\', letter};
      at_ += 2;
      return;
    }
    common_escape(out_);
  }

  void char_class() {
    const std::size_t start = at_;
    bool negated = false;
    const std::string members = class_members(negated);
    if (members.empty()) refuse(start, at_ - start, "is an empty class");
    out_ += negated ? "[^" : "[";
    out_ += members;
    out_ += ']';
  }

  /// Reads a class with those in it; at_ stands on its [ and ends behind its ].
  std::string class_members(bool& negated) {
    const std::size_t start = at_++;
    negated = peek() == '^';
    if (negated) ++at_;
    std::string members;
    bool first = true;
    for (;; first = false) {
      if (at_ >= pattern_.size()) refuse(start, pattern_.size() - start, "has no closing ]");
      const char c = peek();
      if (c == ']' && !first) break;
      if (c == ']') refuse(at_, 1, "as the first member of a class is not supported: write \\]");
      if (c == '[' && peek(1) == ':') refuse(at_, 8, "is a POSIX class, which is not supported");
      if (c == '&' && peek(1) == '&') refuse(at_, 2, "is an intersection of classes, which is not supported");
      if (c == '[') {
        nested_class(members);
      } else if (c == '\\') {
        class_escape(members);
      } else {
        members += c;
        ++at_;
      }
    }
    ++at_;
    return members;
  }

  void nested_class(std::string& members) {
    const std::size_t start = at_;
    if (++depth_ > 32) refuse(start, 1, "is nested too deeply");
    bool negated = false;
    std::string inner = class_members(negated);
    if (negated) refuse(start, at_ - start, "is a negated class within a class, which is not supported");
    // A hyphen at an end of the inner class is a hyphen, and must not make a range with what stands around it.
    if (inner.starts_with('-')) inner.insert(0, "\\");
    if (inner.ends_with('-') && !inner.ends_with("\\-")) inner.insert(inner.size() - 1, "\\");
    if (members.ends_with('-') && !members.ends_with("\\-")) members.insert(members.size() - 1, "\\");
    members += inner;
    if (peek() == '-' && peek(1) != ']') refuse(start, at_ + 1 - start, "is a class at the start of a range");
    --depth_;
  }

  void class_escape(std::string& members) {
    const char letter = peek(1);
    if (const std::string_view known = members_of(letter); !known.empty()) {
      members += known;
      at_ += 2;
    } else if (letter == 'S' || letter == 'D' || letter == 'W' || letter == 'H') {
      negated_member(letter, members);
    } else if (letter == 'b') {
      refuse(at_, 2, "in a class is not supported");
    } else {
      common_escape(members);
    }
  }

  void negated_member(char letter, std::string& members) {
    if (letter != 'S' && letter != 'D') refuse(at_, 2, "in a class is not supported");
    // PCRE2 has a property for all but digits; all but spaces is what lies between them.
    members += letter == 'D'
                   ? R"(\P{Nd})"
                   : R"(\x00-\x08\x0E-\x1F!-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
                     R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
    at_ += 2;
  }

  void group() {
    if (peek(1) != '?') {
      if (peek(1) == '*') refuse(at_, 2, "is not supported");
      out_ += '(';
      ++at_;
      return;
    }
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (pattern_.substr(at_, opening.size()) != opening) continue;
      out_ += opening;
      at_ += opening.size();
      return;
    }
    // At the very start it holds for all of the pattern in both; further on the alternatives it covers differ.
    if (pattern_.substr(at_, 4) == "(?i)" && at_ == 0) {
      out_ += "(?i)";
      at_ += 4;
      return;
    }
    refuse(at_, std::min<std::size_t>(4, pattern_.size() - at_), "is not supported");
  }

  void interval() {
    const std::size_t start = at_;
    const std::size_t close = pattern_.find('}', at_);
    const std::string_view inside = close == std::string_view::npos ? "" : pattern_.substr(at_ + 1, close - at_ - 1);
    const bool counts =
        !inside.empty() && is_digit(inside[0]) && inside.find_first_not_of("0123456789,") == inside.npos;
    if (!counts) refuse(start, inside.size() + 2, "is not supported: escape a { that is meant as it is");
    at_ = close + 1;
    out_ += pattern_.substr(start, at_ - start);
    // Ruby's {n,m}+ repeats the repetition, PCRE2's does not give back.
    if (peek() == '+') refuse(start, at_ + 1 - start, "means different things in different engines");
  }

  std::string_view pattern_;
  std::string out_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string translate_pattern(std::string_view pattern) { return Translator(pattern).run(); }

std::string quote_pattern(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && !is_letter(c) && !is_digit(c)) quoted += '\\';
    quoted += c;
  }
  return quoted;
}

}  // namespace espalier::app
