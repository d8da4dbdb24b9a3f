// The scanners cut as PCRE2 does with the translated patterns, on text made to sit at the edges of the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/tokenizers/pattern.hpp"
#include "text/tokenizers/scanners.hpp"
#include "text/utf8.hpp"

namespace espalier::app {
namespace {

using Pieces = std::vector<std::string>;

template <class Scanner>
Pieces scan(const Scanner& scanner, const std::string& text) {
  Pieces pieces;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    const char* stop = scanner.next(at, end);
    EXPECT_GT(stop, at);
    EXPECT_LE(stop, end);
    if (stop <= at || stop > end) break;
    pieces.emplace_back(at, stop);
    at = stop;
  }
  return pieces;
}

Pieces match(const Pattern& pattern, const std::string& text) {
  std::vector<Span> matches;
  pattern.find_all(text, matches);
  Pieces pieces;
  std::size_t done = 0;
  for (const Span& span : matches) {
    if (done < span.begin) pieces.push_back(text.substr(done, span.begin - done));
    pieces.push_back(text.substr(span.begin, span.end - span.begin));
    done = span.end;
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
  return pieces;
}

/// Characters whose class PCRE2 (Unicode 14) and the table (Unicode 16) agree on.
bool agreed(std::uint32_t code, const Pattern& letters, const Pattern& numbers) {
  std::string text;
  append_utf8(code, text);
  std::vector<Span> found;
  letters.find_all(text, found);
  const bool letter = !found.empty();
  numbers.find_all(text, found);
  const bool number = !found.empty();
  const std::uint8_t classes = unicode_classes()[code];
  return letter == ((classes & kLetter) != 0) && number == ((classes & kNumber) != 0);
}

class ScannerTest : public testing::Test {
 protected:
  std::string random_text(std::size_t characters) {
    // Single ones so that each rule and its neighbours come up, and any character now and then.
    static const std::u32string kEdges =
        U"  \t\n\r\u000B\u0085\u00A0\u180E\u2003\u2028\u200B\u3000'''sstrevmld,.()|!?…。،۔、aZé0٣½Ⅷ日अ\u0301😀\u0000";
    std::string text;
    for (std::size_t k = 0; k < characters; ++k) {
      std::uint32_t code = kEdges[random_() % kEdges.size()];
      if (random_() % 8 == 0) {
        do {
          code = static_cast<std::uint32_t>(random_() % (random_() % 2 == 0 ? 0x3000 : 0x20000));
        } while ((code >= 0xD800 && code < 0xE000) || !agreed(code, letters_, numbers_));
      }
      append_utf8(code, text);
    }
    return text;
  }

  std::mt19937_64 random_{20220711};
  Pattern letters_{R"(\p{L})"}, numbers_{R"(\p{N})"};
};

TEST_F(ScannerTest, Gpt2MatchesPcre2) {
  const Gpt2Scanner scanner;
  const Pattern oracle(translate_pattern(kGpt2Pattern));
  for (int round = 0; round < 4000; ++round) {
    const std::string text = random_text(random_() % 40);
    ASSERT_EQ(scan(scanner, text), match(oracle, text)) << testing::PrintToString(text);
  }
}

TEST_F(ScannerTest, BloomMatchesPcre2) {
  const BloomScanner scanner;
  const Pattern oracle(translate_pattern(kBloomPattern));
  for (int round = 0; round < 4000; ++round) {
    const std::string text = random_text(random_() % 40);
    ASSERT_EQ(scan(scanner, text), match(oracle, text)) << testing::PrintToString(text);
  }
}

// Every character by itself: the table against PCRE2's properties, and white space against its definition.
TEST_F(ScannerTest, TableAgreesWithPcre2) {
  std::size_t newer = 0;
  const Pattern spaces(translate_pattern(R"(\s)")), assigned(R"([^\p{Cn}])");
  for (std::uint32_t start = 0; start < 0x110000; start += 0x100) {
    if (start >= 0xD800 && start < 0xE000) continue;
    std::string text;
    std::vector<std::size_t> starts;
    for (std::uint32_t code = start; code < start + 0x100; ++code) {
      starts.push_back(text.size());
      append_utf8(code, text);
    }
    const auto members = [&](const Pattern& pattern) {
      std::vector<Span> found;
      pattern.find_all(text, found);
      std::vector<bool> member(0x100);
      for (const Span& span : found) {
        member[static_cast<std::size_t>(std::ranges::lower_bound(starts, span.begin) - starts.begin())] = true;
      }
      return member;
    };
    const auto letter = members(letters_), number = members(numbers_), space = members(spaces),
               known = members(assigned);
    for (std::uint32_t k = 0; k < 0x100; ++k) {
      const std::uint8_t classes = unicode_classes()[start + k];
      if (!known[k]) {
        newer += (classes & (kLetter | kNumber)) != 0 ? 1 : 0;
        continue;
      }
      EXPECT_EQ(letter[k], (classes & kLetter) != 0) << start + k;
      EXPECT_EQ(number[k], (classes & kNumber) != 0) << start + k;
      EXPECT_EQ(space[k], (classes & kSpace) != 0) << start + k;
    }
  }
  // Letters and numbers that came with Unicode 15, 15.1 and 16: 9,272 + 120 where PCRE2 has Unicode 14.
  EXPECT_LE(newer, 9392u);
}

TEST_F(ScannerTest, AnyBytesAreCutIntoPieces) {
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (std::size_t k = random_() % 30; k > 0; --k)
      bytes += static_cast<char>(random_() % 3 == 0 ? random_() : ' ' + random_() % 90);
    std::string joined;
    for (const std::string& piece : scan(Gpt2Scanner(), bytes)) joined += piece;
    EXPECT_EQ(joined, bytes);
    joined.clear();
    for (const std::string& piece : scan(BloomScanner(), bytes)) joined += piece;
    EXPECT_EQ(joined, bytes);
  }
}

}  // namespace
}  // namespace espalier::app
