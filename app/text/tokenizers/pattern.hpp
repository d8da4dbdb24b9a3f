#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::app {

/// A stretch of text, in bytes.
struct Span {
  std::size_t begin, end;
};

/// What PCRE2 must be told to mean what Oniguruma (the engine of PyPI tokenizers, Ruby's syntax) means by `pattern`:
/// nested classes are written out, \s \d \w \h are spelled as the characters Oniguruma takes for them.
/// @throws ConfigError whose message quotes the part that has no counterpart here; the caller adds where it is.
std::string translate_pattern(std::string_view pattern);

/// The escaped form that matches `text` itself.
std::string quote_pattern(std::string_view text);

/// A compiled regular expression (PCRE2 with its JIT compiler, Unicode 14). Thread-safe.
class Pattern {
 public:
  /// @param pattern  PCRE2's syntax.
  /// @throws ConfigError with PCRE2's message.
  explicit Pattern(const std::string& pattern);
  ~Pattern();

  /// Replaces `matches` by all matches from left to right, none overlapping. Bytes that are not UTF-8 are in none.
  /// An empty match right behind another match does not count.
  /// @throws IoError when PCRE2 gives up on a text (its limit of backtracking).
  void find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace espalier::app
