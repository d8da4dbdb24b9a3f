// Texts and files made to hurt: they must end, within bounds, and give back what went in.
#include <gtest/gtest.h>

#include <random>

#include "espalier/error.hpp"
#include "text/tokenizers/bpe_trainer.hpp"
#include "unit/text/tokenizers/files.hpp"

namespace espalier::app::tokenizers_test {
namespace {

// Ten megabytes without a place to split; quadratic time would be days.
TEST(HostileText, HugeWordsTakeLinearTime) {
  const auto tokenizer = make(bloom_file());
  std::mt19937 random(3);
  std::string word(10'000'000, '\0');
  for (char& letter : word) letter = static_cast<char>('a' + random() % 20);
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, word)), word);
  word.assign(10'000'000, '~');
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, word)), word);
}

TEST(HostileText, HugeWhiteSpace) {
  for (const char* name : {"bloom", "gpt2"}) {
    const auto file =
        read_tokenizer_file(std::string(ESPALIER_FIXTURES_DIR "/model/tokenizer/") + name + "_tokenizer.json");
    const HuggingFaceTokenizer tokenizer(file, "");
    for (const char* unit : {" ", "\n", " \n", "\u3000", "'", "a'"}) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      EXPECT_EQ(tokenizer.decode(encode(tokenizer, text)), text);
    }
  }
}

TEST(HostileText, BytesOfAnyKindComeBack) {
  std::mt19937 random(9);
  for (const char* name : {"bloom", "gpt2"}) {
    const auto file =
        read_tokenizer_file(std::string(ESPALIER_FIXTURES_DIR "/model/tokenizer/") + name + "_tokenizer.json");
    const HuggingFaceTokenizer tokenizer(file, "");
    for (int round = 0; round < 3000; ++round) {
      std::string text;
      for (std::size_t k = random() % 60; k > 0; --k)
        text += static_cast<char>(random() % 2 == 0 ? random() : 0x20 + random() % 0x5F);
      ASSERT_EQ(tokenizer.decode(encode(tokenizer, text), true), text);
    }
    EXPECT_TRUE(encode(tokenizer, "").empty());
    EXPECT_EQ(tokenizer.decode(encode(tokenizer, std::string(1000, '\0'))), std::string(1000, '\0'));
  }
}

TEST(HostileFile, ManyAddedTokens) {
  Json file = bloom_file();
  for (int k = 0; k < 50'000; ++k) {
    file["added_tokens"].push_back(
        {{"id", 1000 + k}, {"content", "<extra_" + std::to_string(k) + ">"}, {"lstrip", k % 2 == 0}});
  }
  const auto tokenizer = make(file);
  Ids expected = {50'999, 1000};
  tokenizer->encode("<extra_7", expected);
  EXPECT_EQ(encode(*tokenizer, "<extra_49999> <extra_0><extra_7"), expected);
  std::string text;
  while (text.size() < 500'000) text += "<extra_";
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
}

/// Changes a value somewhere in a file: what a damaged or made-up file may look like.
void mutate(Json& node, std::mt19937& random) {
  if (node.is_structured() && !node.empty() && random() % 8 != 0) {
    auto at = node.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random() % node.size()));
    if (random() % 12 == 0) {
      node.erase(at);
    } else {
      mutate(*at, random);
    }
    return;
  }
  const Json values[] = {
      nullptr,       true,           -1,         3,     1e300,      4294967296, "", "Ġ", "\xC4\x80 x",
      Json::array(), Json::object(), {"a", "b"}, "[a-", "ByteLevel"};
  node = values[random() % std::size(values)];
}

TEST(HostileFile, RandomChangesAreReadOrRefused) {
  const Json good = [] {
    Json file = bloom_file();
    file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "NFKD"}}}}};
    file["model"]["merges"].get_ref<Json::array_t&>().resize(50);  // the other parts are hit more often
    file["added_tokens"].push_back(
        {{"id", 1000}, {"content", "é x"}, {"single_word", true}, {"rstrip", true}, {"normalized", true}});
    return file;
  }();
  std::mt19937 random(20220711);
  int read = 0, refused = 0;
  for (int round = 0; round < 1500; ++round) {
    Json file = good;
    for (std::size_t k = 1 + random() % 3; k > 0; --k) mutate(file, random);
    try {
      const auto tokenizer = make(file);
      ++read;
      const Ids ids = encode(*tokenizer, "Hello é x  <s>wörld</s> 12\n\xFF");
      for (const std::int32_t id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer->vocab_size());
      tokenizer->decode(ids);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 50);
}

TEST(HostileFile, CutAnywhereIsRefused) {
  const std::string good = bloom_file().dump();
  for (std::size_t length = 0; length + 1 < good.size(); length += 97) {
    EXPECT_THROW(static_cast<void>(parse_tokenizer_file(good.substr(0, length), "cut")), IoError);
  }
}

TEST(HostileTraining, HugeWordAndOddRequests) {
  PieceCounts counts(SplitStep::Kind::bloom);
  std::string word;
  std::mt19937 random(1);
  for (int k = 0; k < 300'000; ++k)
    word += random() % 3 == 0 ? "ñ" : std::string(1, static_cast<char>('a' + random() % 26));
  counts.add(word);
  const LearnedVocabulary learned = learn_vocabulary(counts.take(), {"<s>"}, 300, 2);
  EXPECT_EQ(learned.size(), 300u);
  EXPECT_THROW(learn_vocabulary({}, {"<s>"}, 256, 2), ConfigError);
  EXPECT_THROW(learn_vocabulary({}, {"<s>", "<s>"}, 300, 2), ConfigError);
  EXPECT_THROW(learn_vocabulary({}, {""}, 300, 2), ConfigError);
  EXPECT_THROW(learn_vocabulary({}, {"!"}, 300, 2), ConfigError);
  EXPECT_EQ(learn_vocabulary({}, {"<s>"}, 300, 2).size(), 257u);  // nothing to learn from
}

// A text that spells a special token must not make a second token of its name.
TEST(HostileTraining, SpecialTokensInTheText) {
  PieceCounts counts(SplitStep::Kind::bloom);
  for (int k = 0; k < 10; ++k) counts.add("</s> </s>");
  const LearnedVocabulary learned = learn_vocabulary(counts.take(), {"<unk>", "</s>"}, 300, 2);
  const HuggingFaceTokenizer tokenizer(parse_tokenizer_file(tokenizer_json(learned, SplitStep::Kind::bloom), "learned"),
                                       "");
  EXPECT_EQ(encode(tokenizer, "</s>"), Ids{1});
}

}  // namespace
}  // namespace espalier::app::tokenizers_test
