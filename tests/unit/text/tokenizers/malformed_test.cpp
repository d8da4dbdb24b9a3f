// A tokenizer.json that is broken or asks for what is not supported: one line that names the part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "espalier/error.hpp"
#include "unit/text/tokenizers/files.hpp"

namespace espalier::app::tokenizers_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const std::string& content) {
  try {
    static_cast<void>(parse_tokenizer_file(content, "/data/tokenizer.json"));
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("/data/tokenizer.json: "));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  return "no refusal";
}

std::string refusal_of(const std::function<void(Json&)>& change) {
  Json file = bloom_file();
  change(file);
  return refusal(file.dump());
}

std::string refusal_of_split(const std::string& regex) {
  return refusal_of([&](Json& file) { file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex; });
}

TEST(MalformedTokenizer, UnchangedFileIsGood) {
  EXPECT_EQ(refusal_of([](Json&) {}), "no refusal");
}

TEST(MalformedTokenizer, NotATokenizerFile) {
  EXPECT_THAT(refusal(""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{\"model\": "), HasSubstr("not JSON: parse error at line 1"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("expected an object, found [1]"));
  EXPECT_THAT(refusal("{}"), HasSubstr("the file has no \"model\""));
  EXPECT_THAT(refusal(R"({"model": {"type": "BPE"}})"), HasSubstr("model has no \"vocab\""));
  EXPECT_THAT(refusal("{\"a\": \"\\ud800\"}"), HasSubstr("surrogate"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("not JSON"));
}

TEST(MalformedTokenizer, Ids) {
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["vocab"]["zz"] = 7; }), HasSubstr("id 7 belongs to both"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["vocab"]["zz"] = 5000; }),
              HasSubstr("id 5000 is beyond the 1005 tokens"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["vocab"]["zz"] = 1001; }), HasSubstr("no token has id 1000"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["vocab"]["zz"] = -1; }), HasSubstr("expected an id"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["vocab"]["zz"] = 1e30; }), HasSubstr("expected an id"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["vocab"]["zz"] = "1000"; }), HasSubstr("expected an id"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["vocab"] = Json::array(); }), HasSubstr("expected an object"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["vocab"].erase("!"); }), HasSubstr("model.vocab"));
}

TEST(MalformedTokenizer, BytesWithoutAToken) {
  EXPECT_THAT(refusal_of([](Json& file) {
                const int id = file["model"]["vocab"]["~"];
                file["model"]["vocab"].erase("~");
                file["model"]["vocab"]["zz"] = id;
              }),
              HasSubstr("no token for byte 0x7E (\"~\")"));
}

TEST(MalformedTokenizer, Merges) {
  const auto with_merge = [](const Json& merge) {
    return refusal_of([&](Json& file) { file["model"]["merges"].push_back(merge); });
  };
  EXPECT_THAT(with_merge({"nowhere", "!"}), HasSubstr("model.merges[740]: [\"nowhere\",\"!\"] needs \"nowhere\""));
  EXPECT_THAT(with_merge({"~~", "!"}), HasSubstr("needs \"~~!\", which is not in the vocabulary"));
  EXPECT_THAT(with_merge({"a", "b", "c"}), HasSubstr("expected two tokens"));
  EXPECT_THAT(with_merge("ab"), HasSubstr("expected two tokens"));
  EXPECT_THAT(with_merge("a b c"), HasSubstr("expected two tokens"));
  EXPECT_THAT(with_merge(3), HasSubstr("expected two tokens"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"].erase("merges"); }), HasSubstr("no \"merges\""));
}

TEST(MalformedTokenizer, AddedTokens) {
  const auto with_token = [](const Json& token) {
    return refusal_of([&](Json& file) { file["added_tokens"].push_back(token); });
  };
  EXPECT_EQ(with_token({{"id", 1000}, {"content", "<new>"}}), "no refusal");
  EXPECT_THAT(with_token({{"id", 1000}, {"content", "!"}}),
              HasSubstr("added_tokens[4]: \"!\" has id 1000, but 4 in the vocabulary"));
  EXPECT_THAT(with_token({{"id", 7}, {"content", "<new>"}}), HasSubstr("id 7 of \"<new>\" belongs to"));
  EXPECT_THAT(with_token({{"id", 1002}, {"content", "<new>"}}), HasSubstr("no token has id 1000"));
  EXPECT_THAT(with_token({{"id", 1000}, {"content", ""}}), HasSubstr("empty"));
  EXPECT_THAT(with_token({{"id", 1}, {"content", "<s>"}}), HasSubstr("\"<s>\" is listed twice"));
  EXPECT_THAT(with_token({{"id", 1000}}), HasSubstr("\"content\" must be a string"));
  EXPECT_THAT(with_token({{"content", "<new>"}}), HasSubstr("has no \"id\""));
  EXPECT_THAT(with_token({{"id", 1000}, {"content", "<new>"}, {"lstrip", 1}}),
              HasSubstr("\"lstrip\" must be true or false"));
  EXPECT_THAT(with_token(3), HasSubstr("\"content\" must be a string"));
}

TEST(MalformedTokenizer, WhatIsNotSupported) {
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["type"] = "Unigram"; }),
              HasSubstr("type \"Unigram\" is not supported"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["dropout"] = 0.1; }), HasSubstr("dropout 0.1"));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["continuing_subword_prefix"] = "##"; }),
              HasSubstr("continuing_subword_prefix \"##\""));
  EXPECT_THAT(refusal_of([](Json& file) { file["model"]["end_of_word_suffix"] = "</w>"; }),
              HasSubstr("end_of_word_suffix \"</w>\""));
  EXPECT_THAT(refusal_of([](Json& file) {
                file["normalizer"] = {{"type", "Lowercase"}};
              }),
              HasSubstr("normalizer: {\"type\":\"Lowercase\"} is not supported"));
  EXPECT_THAT(refusal_of([](Json& file) { file["pre_tokenizer"] = {{"type", "Metaspace"}}; }), HasSubstr("Metaspace"));
  EXPECT_THAT(refusal_of([](Json& file) { file["pre_tokenizer"] = nullptr; }), HasSubstr("no ByteLevel step"));
  EXPECT_THAT(refusal_of([](Json& file) {
                file["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Digits"}});
              }),
              HasSubstr("after ByteLevel"));
  EXPECT_THAT(refusal_of([](Json& file) {
                file["decoder"] = {{"type", "WordPiece"}};
              }),
              HasSubstr("decoder: {\"type\":\"WordPiece\"}"));
  EXPECT_THAT(refusal_of([](Json& file) { file["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Melted"; }),
              HasSubstr("Melted"));
  EXPECT_THAT(refusal_of([](Json& file) { file["pre_tokenizer"]["pretokenizers"][0]["pattern"] = 3; }),
              HasSubstr("\"pattern\" must be"));
}

TEST(MalformedTokenizer, PatternsAreQuoted) {
  EXPECT_THAT(refusal_of_split(R"([a&&b])"), HasSubstr(R"(split pattern "[a&&b]": "&&" at byte 2)"));
  EXPECT_THAT(refusal_of_split("(a"), HasSubstr("regular expression \"(a\""));
  EXPECT_THAT(refusal_of_split(R"(\bword)"), HasSubstr("\\b"));
}

TEST(MalformedTokenizer, SequencesWithoutEnd) {
  Json step = {{"type", "NFC"}};
  for (int k = 0; k < 200; ++k) step = {{"type", "Sequence"}, {"normalizers", Json::array({step})}};
  EXPECT_THAT(refusal_of([&](Json& file) { file["normalizer"] = step; }), HasSubstr("normalizer"));
}

TEST(MalformedTokenizer, Files) {
  EXPECT_THROW(static_cast<void>(read_tokenizer_file("/nowhere/tokenizer.json")), IoError);
  EXPECT_THROW(static_cast<void>(read_tokenizer_file("/")), IoError);
}

}  // namespace
}  // namespace espalier::app::tokenizers_test
