// Every entry of fixtures/model/tokenizer/strings.json (PyPI tokenizers 0.23.3) is reproduced: ids, decoded text,
// pieces.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/tokenizers/byte_symbols.hpp"
#include "text/tokenizers/huggingface_tokenizer.hpp"
#include "text/utf8.hpp"

namespace espalier::app {
namespace {

using Ids = std::vector<std::int32_t>;

const std::string kFolder = ESPALIER_FIXTURES_DIR "/model/tokenizer/";

nlohmann::json read_strings() { return nlohmann::json::parse(std::ifstream(kFolder + "strings.json")); }

std::string repaired(const std::string& bytes) {
  std::string text;
  append_repaired_utf8(bytes, text);
  return text;
}

struct Case {
  const char* file;
  const char* key;
};

class FixtureTest : public testing::TestWithParam<Case> {
 protected:
  FixtureTest() : strings_(read_strings()), tokenizer_(read_tokenizer_file(kFolder + GetParam().file), "") {}

  Ids encode(const std::string& text) const {
    Ids ids;
    tokenizer_.encode(text, ids);
    return ids;
  }

  void check_texts(const char* list) const {
    ASSERT_FALSE(strings_.at(list).empty());
    for (const auto& entry : strings_.at(list)) {
      const auto text = entry.at("text").get<std::string>();
      const auto& expected = entry.at(GetParam().key);
      const Ids ids = encode(text);
      EXPECT_EQ(ids, expected.at("ids").get<Ids>()) << entry.at("category") << " " << entry.at("text");
      const auto decoded = expected.contains("decoded") ? expected.at("decoded").get<std::string>() : text;
      EXPECT_EQ(repaired(tokenizer_.decode(ids, true)), decoded) << entry.at("category");
    }
  }

  nlohmann::json strings_;
  HuggingFaceTokenizer tokenizer_;
};

TEST_P(FixtureTest, Sizes) {
  EXPECT_EQ(tokenizer_.vocab_size(), 1000);
  EXPECT_EQ(tokenizer_.end_of_document(), 2);  // </s>
}

TEST_P(FixtureTest, Cases) { check_texts("cases"); }
TEST_P(FixtureTest, Fuzz) { check_texts("fuzz"); }
TEST_P(FixtureTest, Long) { check_texts("long"); }

TEST_P(FixtureTest, CachedPiecesGiveTheSameIds) {
  for (int round = 0; round < 3; ++round) check_texts("cases");
}

TEST_P(FixtureTest, Decode) {
  ASSERT_FALSE(strings_.at("decode").empty());
  for (const auto& entry : strings_.at("decode")) {
    const auto ids = entry.at("ids").get<Ids>();
    const auto& expected = entry.at(GetParam().key);
    EXPECT_EQ(repaired(tokenizer_.decode(ids, true)), expected.at("keep_special").get<std::string>());
    EXPECT_EQ(repaired(tokenizer_.decode(ids)), expected.at("skip_special").get<std::string>());
  }
}

TEST_P(FixtureTest, Pieces) {
  const TokenizerFile file = read_tokenizer_file(kFolder + GetParam().file);
  SplitScratch scratch;
  ASSERT_FALSE(strings_.at("pieces").empty());
  for (const auto& entry : strings_.at("pieces")) {
    const auto text = entry.at("text").get<std::string>();
    std::vector<std::string> pieces;
    file.pretokenizer.split(text, scratch, [&](std::string_view piece) { pieces.push_back(symbols_of_bytes(piece)); });
    EXPECT_EQ(pieces, entry.at(GetParam().key).get<std::vector<std::string>>()) << entry.at("text");
  }
}

// Bytes that are not UTF-8 map straight to their tokens and come back; repaired first, the ids are those of the
// fixture.
TEST_P(FixtureTest, InvalidUtf8) {
  ASSERT_FALSE(strings_.at("invalid_utf8").empty());
  for (const auto& entry : strings_.at("invalid_utf8")) {
    const auto hex = entry.at("bytes_hex").get<std::string>();
    std::string bytes;
    for (std::size_t k = 0; k < hex.size(); k += 2)
      bytes += static_cast<char>(std::stoi(hex.substr(k, 2), nullptr, 16));
    EXPECT_EQ(repaired(bytes), entry.at("replaced").get<std::string>()) << hex;
    EXPECT_EQ(encode(repaired(bytes)), entry.at(GetParam().key).at("ids_of_replaced").get<Ids>()) << hex;
    EXPECT_EQ(tokenizer_.decode(encode(bytes), true), bytes) << hex;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, FixtureTest,
                         testing::Values(Case{"bloom_tokenizer.json", "bloom"},
                                         Case{"bloom_tokenizer_legacy_merges.json", "bloom"},
                                         Case{"gpt2_tokenizer.json", "gpt2"}),
                         [](const auto& parameter) {
                           const std::string file = parameter.param.file;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace espalier::app
