// What PyPI tokenizers learns and what PyPI sentencepiece makes of texts; make_models.py wrote it down.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/tokenizers/bpe_trainer.hpp"
#include "text/tokenizers/huggingface_tokenizer.hpp"
#include "text/tokenizers/sentencepiece_tokenizer.hpp"

namespace espalier::app {
namespace {

using Ids = std::vector<std::int32_t>;

const std::string kFolder = ESPALIER_FIXTURES_DIR "/model/tokenizer_variants/";

nlohmann::json read(const std::string& name) { return nlohmann::json::parse(std::ifstream(kFolder + name)); }

class TrainingTest : public testing::TestWithParam<std::string> {};

TEST_P(TrainingTest, LearnsWhatTokenizersLearns) {
  const auto recorded = read("training.json");
  const auto pattern = GetParam() == "gpt2" ? SplitStep::Kind::gpt2 : SplitStep::Kind::bloom;
  PieceCounts counts(pattern);
  for (const auto& text : recorded.at("texts")) counts.add(text.get<std::string>());
  const LearnedVocabulary learned = learn_vocabulary(counts.take(), {"<unk>", "<s>", "</s>", "<pad>"}, 900, 2);
  const std::string content = tokenizer_json(learned, pattern);
  const auto model = nlohmann::json::parse(content).at("model");
  EXPECT_EQ(model.at("vocab"), recorded.at(GetParam()).at("vocab"));
  EXPECT_EQ(model.at("merges"), recorded.at(GetParam()).at("merges"));
  const HuggingFaceTokenizer tokenizer(parse_tokenizer_file(content, "learned"), "");
  EXPECT_EQ(tokenizer.vocab_size(), static_cast<std::int64_t>(learned.size()));
  for (const auto& text : recorded.at("texts")) {
    Ids ids;
    tokenizer.encode(text.get<std::string>(), ids);
    EXPECT_EQ(tokenizer.decode(ids, true), text.get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, TrainingTest, testing::Values("bloom", "gpt2"),
                         [](const auto& parameter) { return parameter.param; });

class SentencePieceTest : public testing::TestWithParam<std::string> {};

TEST_P(SentencePieceTest, IdsAndTextAreTheLibrarys) {
  const SentencePieceTokenizer tokenizer(kFolder + GetParam() + ".model", "");
  EXPECT_EQ(tokenizer.vocab_size(), 700);
  EXPECT_EQ(tokenizer.end_of_document(), 2);
  EXPECT_TRUE(tokenizer.fingerprint().starts_with("sentencepiece:"));
  const auto recorded = read(GetParam() + ".json");
  ASSERT_GT(recorded.size(), 100u);
  for (const auto& entry : recorded) {
    Ids ids;
    tokenizer.encode(entry.at("text").get<std::string>(), ids);
    EXPECT_EQ(ids, entry.at("ids").get<Ids>()) << entry.at("text");
    if (ids.size() == 1) continue;  // keeps its space
    EXPECT_EQ(tokenizer.decode(ids), entry.at("decoded").get<std::string>()) << entry.at("text");
  }
}

// Streamed id by id, words keep their spaces.
TEST_P(SentencePieceTest, SingleIdsJoinToTheText) {
  const SentencePieceTokenizer tokenizer(kFolder + GetParam() + ".model", "");
  Ids ids;
  tokenizer.encode("so ietz füerst d Schritt", ids);
  ASSERT_GT(ids.size(), 3u);
  std::string text;
  for (const std::int32_t id : ids) text += tokenizer.decode({&id, 1});
  EXPECT_EQ(text, " so ietz füerst d Schritt");
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceTest, testing::Values("sentencepiece_bpe", "sentencepiece_unigram"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace espalier::app
