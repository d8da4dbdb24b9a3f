#include "text/utf8.hpp"

#include <gtest/gtest.h>

#include <random>

namespace espalier::app {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

TEST(Utf8, EveryCodePointIsValidAndEverySurrogateIsNot) {
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    std::string text;
    append_utf8(code, text);
    ASSERT_EQ(find_invalid_utf8(text), code >= 0xD800 && code < 0xE000 ? 0 : kNone) << code;
  }
}

TEST(Utf8, InvalidFormsAreFoundWhereTheyStart) {
  EXPECT_EQ(find_invalid_utf8("plain"), kNone);
  EXPECT_EQ(find_invalid_utf8("eight ASCII bytes and more \xFF"), 27u);
  EXPECT_EQ(find_invalid_utf8("a\xC0\xAF"), 1u);         // overlong
  EXPECT_EQ(find_invalid_utf8("\xE0\x80\x80"), 0u);      // overlong
  EXPECT_EQ(find_invalid_utf8("\xF0\x80\x80\x80"), 0u);  // overlong
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xF5\x80\x80\x80"), 0u);
  EXPECT_EQ(find_invalid_utf8("ab\xC3"), 2u);  // cut off
  EXPECT_EQ(find_invalid_utf8("\x80"), 0u);
}

TEST(Utf8, RepairReplacesMaximalParts) {
  const auto repaired = [](std::string_view text) {
    std::string out;
    const auto count = append_repaired_utf8(text, out);
    return std::to_string(count) + ":" + out;
  };
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(repaired("caf\xC3\xA9"), "0:caf\xC3\xA9");
  EXPECT_EQ(repaired("a\xFF\xFE"
                     "b"),
            "2:a" + r + r + "b");
  EXPECT_EQ(repaired("a\xE2\x82"), "1:a" + r);  // a cut character is one part
  // The example of the Unicode standard, table 3-11.
  EXPECT_EQ(repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "4:" + r + r + r + r + "A");
}

TEST(Utf8, StreamGivesWholeCharactersWhereverPiecesEnd) {
  const std::string text = "aé漢字🙂, fin";
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    Utf8Stream stream;
    std::string seen;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = std::min<std::size_t>(text.size() - at, random() % 3);
      const std::string piece = stream.push(text.substr(at, length));
      ASSERT_EQ(find_invalid_utf8(piece), kNone);
      seen += piece;
      at += length;
    }
    ASSERT_EQ(seen + stream.finish(), text);
  }
}

TEST(Utf8, StreamDoesNotWaitForWhatCannotComplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE6\xBC"), "");
  EXPECT_EQ(stream.push("x"), "\xEF\xBF\xBDx");  // the character will not come any more
  EXPECT_EQ(stream.push("\xC3"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace espalier::app
