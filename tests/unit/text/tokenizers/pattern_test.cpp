// Oniguruma's patterns in PCRE2's words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "espalier/error.hpp"
#include "text/tokenizers/pattern.hpp"

namespace espalier::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<Span> spans;
  Pattern(translate_pattern(pattern)).find_all(text, spans);
  std::vector<std::string> found;
  for (const Span& span : spans) found.push_back(text.substr(span.begin, span.end - span.begin));
  return found;
}

std::string refusal(const std::string& pattern) {
  try {
    return "translated to " + translate_pattern(pattern);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(TranslatePattern, NestedClassesAreWrittenOut) {
  EXPECT_EQ(translate_pattern("[a[bc]d]"), "[abcd]");
  EXPECT_EQ(translate_pattern("[^a[b[c]]]"), "[^abc]");
  EXPECT_THAT(matches("[a-c[x-z]]+", "abxyzqc"), ElementsAre("abxyz", "c"));
  EXPECT_THAT(matches("[+-[x]]+", "+-x,"), ElementsAre("+-x"));
  EXPECT_THAT(matches("[a[-]z]+", "a-zm"), ElementsAre("a-z"));
}

TEST(TranslatePattern, ClassesOfCharacters) {
  EXPECT_THAT(matches(R"(\s+)", "a \t\u00A0\u3000b\u180Ec"),
              ElementsAre(" \t\u00A0\u3000"));  // U+180E is no white space
  EXPECT_THAT(matches(R"(\S+)", "a b\u0085c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(matches(R"([^\S\n]+)", "a \n b"), ElementsAre(" ", " "));
  EXPECT_THAT(matches(R"(\w+)", "e\u0301a_1-b"), ElementsAre("e\u0301a_1", "b"));
  EXPECT_THAT(matches(R"(\d+)", "12a٣½"), ElementsAre("12", "٣"));
  EXPECT_THAT(matches(R"(\h+)", "beef xyz"), ElementsAre("beef"));  // hexadecimal to Oniguruma, blanks to Perl
  EXPECT_THAT(matches(R"(\v)", "a\vb\nc"), ElementsAre("\v"));
  EXPECT_THAT(matches(R"([\D]+)", "a1b"), ElementsAre("a", "b"));
  EXPECT_THAT(matches(R"(\x41\x{e9}\u65e5)", "Aé日"), ElementsAre("Aé日"));
  EXPECT_THAT(matches(R"((?i:'S)|\p{Lu})", "'s'Sa B"), ElementsAre("'s", "'S", "B"));
}

TEST(TranslatePattern, EmptyMatches) {
  EXPECT_THAT(matches("x*", "axxb"), ElementsAre("", "xx", ""));
  EXPECT_THAT(matches("$", "a\nb"), ElementsAre("", ""));  // every line, as in Ruby
}

TEST(TranslatePattern, RefusesWhatHasNoCounterpart) {
  EXPECT_THAT(refusal("[a&&b]"), HasSubstr("\"&&\" at byte 2 is an intersection"));
  EXPECT_THAT(refusal("[a[^b]]"), HasSubstr("\"[^b]\" at byte 2 is a negated class within a class"));
  EXPECT_THAT(refusal("[[:alpha:]]"), HasSubstr("POSIX"));
  EXPECT_THAT(refusal("[a"), HasSubstr("no closing ]"));
  EXPECT_THAT(refusal("[]"), HasSubstr("class"));
  EXPECT_THAT(refusal(R"(\ba)"), HasSubstr("\"\\b\""));
  EXPECT_THAT(refusal(R"(\X)"), HasSubstr("\"\\X\""));
  EXPECT_THAT(refusal(R"((a)\1)"), HasSubstr("\"\\1\""));
  EXPECT_THAT(refusal(R"(\xE9)"), HasSubstr("byte"));
  EXPECT_THAT(refusal(R"(\u12)"), HasSubstr("no character"));
  EXPECT_THAT(refusal("a{2}+"), HasSubstr("different"));
  EXPECT_THAT(refusal("a{,3}"), HasSubstr("\"{,3}\""));
  EXPECT_THAT(refusal("a{"), HasSubstr("\"{\""));
  EXPECT_THAT(refusal("(?<name>a)"), HasSubstr("\"(?<n\""));
  EXPECT_THAT(refusal("a(?i)b"), HasSubstr("(?i)"));
  EXPECT_THAT(refusal("(*FAIL)"), HasSubstr("\"(*\""));
  EXPECT_THAT(refusal("\\"), HasSubstr("ends the pattern"));
  EXPECT_THAT(refusal(std::string(100, '[')), HasSubstr("nested too deeply"));
}

TEST(TranslatePattern, QuotedTextMatchesItself) {
  const std::string odd = "a.b*[c](d)^$|?+{}\\-#é\n";
  std::vector<Span> spans;
  Pattern(quote_pattern(odd)).find_all("x" + odd + odd, spans);
  EXPECT_EQ(spans.size(), 2u);
}

TEST(Pattern, MatchesAroundInvalidUtf8) {
  EXPECT_THAT(matches(R"(\p{L}+)",
                      "ab\xFF"
                      "cd\xC3"),
              ElementsAre("ab", "cd"));
}

}  // namespace
}  // namespace espalier::app
