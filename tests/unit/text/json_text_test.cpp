#include "text/json_text.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace espalier::app {
namespace {

struct Seen {
  LineFault fault;
  std::string text;
  std::int64_t replaced;
};

Seen read(std::string_view line, bool repair = false, std::string_view key = "text") {
  std::string text;
  const TextField field = read_text_field(line, key, repair, text);
  return {field.fault, text, field.replaced};
}

void expect_text(std::string_view line, const std::string& text) {
  const Seen seen = read(line);
  EXPECT_EQ(seen.fault, LineFault::none) << line;
  EXPECT_EQ(seen.text, text) << line;
}

TEST(JsonText, TheKeyIsFoundWhereverItStands) {
  expect_text(R"({"text": "a b"})", "a b");
  expect_text(R"( { "id" : -1.5e+3 , "meta":{"text":"inner","deep":[[],{}]} ,"text":"outer"} )", "outer");
  expect_text(R"({"text":"first","text":"last"})", "last");
  expect_text(R"({"te\u0078t":"escaped key"})", "escaped key");
  expect_text(R"({"text":""})", "");
  EXPECT_EQ(read(R"({"content":"x"})", false, "content").text, "x");
}

TEST(JsonText, EscapesMeanWhatTheyDoInJson) {
  expect_text(R"({"text":"\"\\\/\b\f\n\r\t"})", "\"\\/\b\f\n\r\t");
  expect_text(R"({"text":"\u00e9\u6f22\uD83D\uDE42"})", "é漢🙂");
  expect_text("{\"text\":\"é漢🙂\"}", "é漢🙂");
  expect_text(R"({"text":"\u0000x"})", std::string("\0x", 2));
}

// D31: the kinds of bad lines.
TEST(JsonText, EachFaultHasItsName) {
  EXPECT_EQ(read(R"("context")").fault, LineFault::no_object);
  EXPECT_EQ(read("42").fault, LineFault::no_object);
  EXPECT_EQ(read("[]").fault, LineFault::no_object);
  EXPECT_EQ(read("null").fault, LineFault::no_object);
  EXPECT_EQ(read(R"({"txt":"x"})").fault, LineFault::no_key);
  EXPECT_EQ(read("{}").fault, LineFault::no_key);
  EXPECT_EQ(read(R"({"text":5})").fault, LineFault::no_string);
  EXPECT_EQ(read(R"({"text":["a"]})").fault, LineFault::no_string);
  EXPECT_EQ(read(R"({"text":5,"text":"good"})").fault, LineFault::none);
  EXPECT_EQ(read(R"({"text":"good","text":null})").fault, LineFault::no_string);
}

// Found by the fuzzer, in the library it compares with: that one stops at a byte of zero and calls the rest of the line sound.
TEST(JsonText, AByteOfZeroIsNoEndOfTheLine) {
  for (const std::string_view line :
       {std::string_view("5\0\0\0" "7", 5), std::string_view("{\"text\":\"a\"}\0", 13),
        std::string_view("{\"text\":\"a\0b\"}", 14), std::string_view("\0{\"text\":\"a\"}", 13)}) {
    EXPECT_EQ(read(line).fault, LineFault::broken_json) << line;
  }
}

// Where files were put together: only the first byte order mark is one of a file.
TEST(JsonText, AByteOrderMarkIsNoPartOfALine) {
  EXPECT_EQ(read("\xEF\xBB\xBF{\"text\":\"a\"}").fault, LineFault::broken_json);
  EXPECT_EQ(read("\xEF\xBB\xBF" "55").fault, LineFault::broken_json);
}

// T03: half a surrogate pair is refused, or replaced and counted.
TEST(JsonText, LoneSurrogatesAreNeverKept) {
  for (const char* line :
       {R"({"text":"a\ud800"})", R"({"text":"a\udc00"})", R"({"text":"a\ud83dx"})", R"({"text":"a\ud83d\n"})"}) {
    EXPECT_EQ(read(line).fault, LineFault::bad_characters) << line;
    EXPECT_EQ(read(line, true).replaced, 1) << line;
  }
  const Seen both = read(R"({"text":"\ud83d\ud83d\ude42"})", true);
  EXPECT_EQ(both.text, "\xEF\xBF\xBD🙂");
  EXPECT_EQ(both.replaced, 1);
  // Elsewhere in the line they harm nobody.
  expect_text(R"({"meta":"\ud800","text":"x"})", "x");
}

// Our own scanner against a library: same verdict on every line, same text.
TEST(JsonText, AgreesWithAnIndependentParser) {
  const std::string good = R"({"a":[1,-0.5e-7,{"b":null}],"text":"x\u00e9\n\"y","z":{"k":[true,false,[]]}})";
  std::vector<std::string> lines;
  for (std::size_t k = 0; k <= good.size(); ++k) lines.push_back(good.substr(0, k));
  for (std::size_t k = 0; k < good.size(); ++k) {
    lines.push_back(good.substr(0, k) + good.substr(k + 1));
    for (const char* other : {"\"", "}", "]", ",", ":", "0", "-", "\\", "\x01", "e", " "})
      lines.push_back(good.substr(0, k) + other + good.substr(k + 1));
  }
  int accepted = 0;
  for (const std::string& line : lines) {
    const auto tree = nlohmann::json::parse(line, nullptr, false);
    const Seen seen = read(line);
    ASSERT_EQ(seen.fault == LineFault::broken_json, tree.is_discarded()) << line;
    if (!tree.is_object() || !tree.contains("text") || !tree["text"].is_string()) continue;
    ++accepted;
    ASSERT_EQ(seen.fault, LineFault::none) << line;
    ASSERT_EQ(seen.text, tree["text"].get<std::string>()) << line;
  }
  EXPECT_GT(accepted, 100);
}

TEST(JsonText, DeepNestingIsAFaultAndNoCrash) {
  const std::string deep(100000, '[');
  EXPECT_EQ(read("{\"a\":" + deep).fault, LineFault::broken_json);
  EXPECT_EQ(read(deep + std::string(100000, ']')).fault, LineFault::broken_json);
  const std::string within = std::string(200, '[') + std::string(200, ']');
  expect_text("{\"a\":" + within + ",\"text\":\"x\"}", "x");
}

}  // namespace
}  // namespace espalier::app
