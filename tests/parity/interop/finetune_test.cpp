// A Hugging Face model continues training on pairs of prompt and completion: directly, converted, on several ranks, and
// after a stop; and what does not count in the loss has no influence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/process.hpp"
#include "parity/model/rig.hpp"
#include "support/trainer_job.hpp"
#include "text/byte_tokenizer.hpp"
#include "text/completions_dataset.hpp"
#include "text/tokenizers/byte_symbols.hpp"
#include "text/utf8.hpp"
#include "train/loader.hpp"
#include "unit/text/files.hpp"

namespace espalier::testing_support {
namespace {

namespace fs = std::filesystem;
using app::text_test::Folder;
using cli_test::quoted;
using ::testing::HasSubstr;

/// A tokenizer.json without merges: the bytes and an end of document; the fixture has 301 rows.
std::string plain_tokenizer() {
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    app::append_utf8(app::symbol_of_byte(static_cast<unsigned char>(byte)), symbol);
    vocabulary[symbol] = byte;
  }
  const nlohmann::json end = {{"id", 256},       {"content", "</s>"},   {"single_word", false}, {"lstrip", false},
                              {"rstrip", false}, {"normalized", false}, {"special", true}};
  const nlohmann::json file = {
      {"version", "1.0"},
      {"added_tokens", {end}},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  return file.dump();
}

/// Pairs whose completions differ much in length, so that a mean of means would not be the mean.
std::string pairs() {
  std::string lines;
  for (int i = 0; i < 24; ++i) {
    const std::string completion = i % 3 == 0 ? std::string(1, 'y') : "number " + std::to_string(i * i);
    lines += R"({"prompt":"what is )" + std::to_string(i) + R"(? ","completion":")" + completion + "\"}\n";
  }
  return lines;
}

class FineTuning : public ::testing::Test {
 protected:
  FineTuning() {
    folder_.write("tokenizer.json", plain_tokenizer());
    folder_.write("pairs.jsonl", pairs());
  }
  /// The fixture model on the pairs.
  TrainerJob job(const std::string& name, const std::string& weights) const {
    TrainerJob job("finetune_" + name);
    job.set("model.layers", "3")
        .set("model.hidden", "96")
        .set("model.heads", "12")
        .set("model.vocab_size", "310")
        .set("model.seq_length", "28");
    job.set("train.train_iters", "6").set("train.lr", "1e-3").set("train.lr_decay_style", "\"constant\"");
    job.set("tokenizer.plugin", "\"huggingface\"").set("tokenizer.file", "\"" + folder_.file("tokenizer.json") + "\"");
    job.set("data.plugin", "\"completions\"").set("data.train", "[\"" + folder_.file("pairs.jsonl") + "\"]");
    job.set("checkpoint.load_model", "\"" + weights + "\"");
    return job;
  }
  const Folder folder_;
  const std::string hf_ = (fs::path(ESPALIER_FIXTURES_DIR) / "model/tiny_b/hf").string();
};

void expect_near(const std::vector<Json>& a, const std::vector<Json>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(number(a[i], "lm loss"), number(b[i], "lm loss"), tolerance) << "step " << i + 1;
    EXPECT_NEAR(number(a[i], "grad norm"), number(b[i], "grad norm"), tolerance * number(a[i], "grad norm")) << i + 1;
  }
}

TEST_F(FineTuning, DirectlyConvertedAndOnAnyLayout) {
  TrainerJob direct = job("direct", hf_);
  EXPECT_THAT(direct.expect(0).output, HasSubstr("weights of " + hf_ + "; the optimizer's state starts anew"));
  const std::vector<Json> steps = direct.steps();
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_LT(number(steps.back(), "lm loss"), 0.8 * number(steps.front(), "lm loss"));
  // What its config.json says beside the shape goes on with it.
  const std::string exported = folder_.file("exported");
  ASSERT_EQ(
      cli_test::run(std::string(TRAINER_EXE) + " convert " + quoted(direct.run_dir()) + " " + quoted(exported)).code,
      0);
  std::ifstream before(hf_ + "/config.json"), after(exported + "/config.json");
  const Json original = Json::parse(before), written = Json::parse(after);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    EXPECT_EQ(written[key], original[key]) << key;

  ASSERT_EQ(cli_test::run(std::string(TRAINER_EXE) + " convert " + quoted(hf_) + " " + quoted(folder_.file("ck"))).code,
            0);
  // T06: the size of the embedding, whatever the tokenizer's, leaves every loss as it is.
  TrainerJob converted = job("converted", folder_.file("ck"));
  converted.set("model.vocab_size", "301");
  converted.expect(0);
  EXPECT_EQ(difference_of_steps(steps, converted.steps(), 1, 6), "") << "rows that no id reaches change nothing";

  TrainerJob data = job("data", hf_);
  data.ranks(2, 1);
  data.expect(0);
  expect_near(steps, data.steps(), 2e-5);
  TrainerJob tensor = job("tensor", hf_);
  tensor.ranks(2, 1).set("parallel.tensor.plugin", "\"parallel_tensor\"").set("parallel.tensor.size", "2");
  tensor.expect(0);
  expect_near(steps, tensor.steps(), 2e-5);
}

// The weights are where a run starts, not where it goes on.
TEST_F(FineTuning, ARunThatWasStoppedGoesOn) {
  TrainerJob whole = job("whole", hf_);
  whole.expect(0);
  TrainerJob stopped = job("stopped", hf_);
  stopped.set("train.exit_interval", "4");
  stopped.expect(75);
  stopped.set("train.exit_interval", "0");
  stopped.expect(0);
  EXPECT_EQ(difference_of_steps(whole.steps(), stopped.steps(), 1, 6), "");
}

TEST_F(FineTuning, MistakesAreNamed) {
  const auto refused = [](TrainerJob job, int code, const std::string& text) {
    EXPECT_THAT(job.expect(code).output, HasSubstr(text));
  };
  TrainerJob heads = job("heads", hf_);
  heads.set("model.heads", "8");
  refused(std::move(heads), 4, "model.heads is 8, but the weights are for 12");
  TrainerJob both = job("both", hf_);
  both.set("checkpoint.load", "\"none\"");
  refused(std::move(both), 2, "checkpoint.load_model");
  TrainerJob small = job("small", hf_);
  small.set("model.vocab_size", "280");
  refused(std::move(small), 4, "has shape [301, 96], the model needs [280, 96]");
}

/// Samples as the loader makes them.
class PairBatches final : public BatchSource {
 public:
  PairBatches(const Dataset& dataset, int samples) : seq_(dataset.sample_tokens() - 1), samples_(samples) {
    const auto seq = static_cast<std::size_t>(seq_);
    targets.resize(seq * static_cast<std::size_t>(samples));
    ids.resize(targets.size() + 1);
    std::vector<std::uint8_t> mask(seq);
    for (int s = 0; s < samples; ++s) {
      const std::size_t at = static_cast<std::size_t>(s) * seq;
      app::read_sample(dataset, 0, s, app::ByteTokenizer::kVocab, std::span(ids).subspan(at, seq + 1), mask,
                       std::span(targets).subspan(at, seq));
    }
  }
  MicroBatch micro_batch(int index) override {
    const std::int64_t at = index * seq_;
    return {ids.data() + at, targets.data() + at, index};
  }
  std::vector<std::int32_t> ids, targets;

 private:
  std::int64_t seq_;
  int samples_;
};

// Prompts of one length, so that what follows the last target that counts is padding: whatever stands there, input or
// target, no gradient knows of it.
TEST(MaskedTargets, HaveNoInfluenceOnAnyGradient) {
  const Folder folder;
  app::CompletionsDataset::Settings settings;
  settings.train = {
      folder.write("a.jsonl", "{\"prompt\":\"ab\",\"completion\":\"xyz\"}\n{\"prompt\":\"c\",\"completion\":\"w\"}\n")};
  settings.seq = 10;
  settings.train_samples = 2;
  const app::CompletionsDataset dataset(settings, app::ByteTokenizer());
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 20;
  shape.heads = 5;
  shape.ffn = 80;
  shape.vocab = shape.tokenizer_vocab = app::ByteTokenizer::kVocab;
  shape.seq_length = settings.seq;
  const auto gradients = [&](PairBatches& batches, std::int64_t counted) {
    const Walk walk{Mode::train, 1, settings.seq, 2};
    Rig rig(shape, {}, {walk});
    const Verdict verdict = rig.executor().train_step(walk, batches, {}, rig.optimizer());
    EXPECT_EQ(verdict.tokens, counted);
    std::vector<std::vector<float>> all;
    for (const Parameter& parameter : rig.parameters().all())
      all.push_back(rig.state(parameter, GradientProbe::kState));
    return all;
  };
  PairBatches plain(dataset, 2);
  const auto expected = gradients(plain, 4 + 2);
  PairBatches other = plain;
  int changed = 0;
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t i = 10; i-- > 0 && other.targets[row * 10 + i] < 0;) {
      other.ids[row * 10 + i] = 'Q';  // the padding as input
      ++changed;
    }
  }
  EXPECT_GE(changed, 8);
  EXPECT_EQ(gradients(other, 4 + 2), expected);
  // The test sees what it should: a target that counts does matter.
  PairBatches moved = plain;
  for (std::int32_t& target : moved.targets) {
    if (target == 'x') target = 'X';
  }
  EXPECT_NE(gradients(moved, 4 + 2), expected);
}

}  // namespace
}  // namespace espalier::testing_support
