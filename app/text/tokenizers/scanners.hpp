#pragma once

#include "text/tokenizers/unicode_classes.hpp"

namespace espalier::app {

/// The split patterns that are worth a scanner of their own: each cuts a text into pieces that cover it. next() returns
/// where the piece that starts at `at` ends; `at` is below `end`. PCRE2 is their oracle in the tests.

inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Oniguruma's: the inner brackets are a nested class, so nothing of it, no white space and none of ( | ) is matched.
inline constexpr const char* kBloomPattern = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";

class Gpt2Scanner {
 public:
  Gpt2Scanner() : classes_(unicode_classes()) {}

  const char* next(const char* at, const char* end) const {
    if (*at == '\'') {
      if (const char* after = contraction(at, end)) return after;
    }
    const char* start = at;
    if (*at == ' ' && at + 1 < end) ++start;
    const Character first = read_character(start, end);
    const std::uint8_t kind = kind_of(first);
    // A space before anything but white space belongs to what follows.
    if (kind != kSpace) return run(start + first.length, end, kind);
    return spaces(at, end);
  }

 private:
  /// Letter, number, space or 0: every character is one of them.
  std::uint8_t kind_of(const Character& character) const {
    return static_cast<std::uint8_t>(classes_of(character, classes_) & (kLetter | kNumber | kSpace));
  }

  const char* run(const char* at, const char* end, std::uint8_t kind) const {
    while (at < end) {
      const Character next = read_character(at, end);
      if (kind_of(next) != kind) break;
      at += next.length;
    }
    return at;
  }

  /// The whole run at the end of the text; else all but its last character, and at least one.
  const char* spaces(const char* at, const char* end) const {
    const char* last = at;
    const char* stop = at;
    while (stop < end) {
      const Character next = read_character(stop, end);
      if (kind_of(next) != kSpace) break;
      last = stop;
      stop += next.length;
    }
    return stop == end || last == at ? stop : last;
  }

  static const char* contraction(const char* at, const char* end) {
    const auto left = end - at;
    if (left < 2) return nullptr;
    const char second = at[1];
    if (second == 's' || second == 't' || second == 'm' || second == 'd') return at + 2;
    if (left < 3) return nullptr;
    const char third = at[2];
    const bool two =
        (second == 'r' && third == 'e') || (second == 'v' && third == 'e') || (second == 'l' && third == 'l');
    return two ? at + 3 : nullptr;
  }

  const std::uint8_t* classes_;
};

class BloomScanner {
 public:
  BloomScanner() : classes_(unicode_classes()) {}

  const char* next(const char* at, const char* end) const {
    if (const char* start = match_start(at, end)) return run(start, end);
    // A gap: up to the next match.
    while (at < end && match_start(at, end) == nullptr) at += read_character(at, end).length;
    return at;
  }

 private:
  bool matches(const Character& character) const { return (classes_of(character, classes_) & kBloomGap) == 0; }

  /// Behind the first matched character when a match starts at `at`: that character, or a space and it.
  const char* match_start(const char* at, const char* end) const {
    if (*at == ' ' && ++at == end) return nullptr;
    const Character first = read_character(at, end);
    return matches(first) ? at + first.length : nullptr;
  }

  const char* run(const char* at, const char* end) const {
    while (at < end) {
      const Character next = read_character(at, end);
      if (!matches(next)) break;
      at += next.length;
    }
    return at;
  }

  const std::uint8_t* classes_;
};

}  // namespace espalier::app
