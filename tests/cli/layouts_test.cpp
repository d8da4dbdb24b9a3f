// One checkpoint, generated from and evaluated on every kind of layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "cli/process.hpp"
#include "unit/text/files.hpp"

namespace espalier::cli_test {
namespace {

using app::text_test::Folder;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kTrainer = TRAINER_EXE;

struct Layout {
  int tensor, pipeline, data;
  std::string more;  ///< --set of its own
};

std::string text_of(const Layout& layout) {
  return "tensor " + std::to_string(layout.tensor) + ", pipeline " + std::to_string(layout.pipeline) + ", data " +
         std::to_string(layout.data) + " " + layout.more;
}

class Layouts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new Folder;
    std::string lines;
    for (int k = 0; k < 40; ++k) lines += "{\"text\":\"number " + std::to_string(k * k) + " é, and again\"}\n";
    folder_->write("train.jsonl", lines);
    folder_->write("held_out.txt", "number 7 é, and once more; and again number 12");
    const std::string text = here(kTrainer + " preprocess --input train.jsonl --output train").text;
    folder_->write("recipe.toml", R"(
[run]
dir = "run"
[model]
layers = 4
hidden = 32
heads = 2
vocab_size = 261
seq_length = 16
[train]
train_iters = 30
global_batch_size = 8
micro_batch_size = 2
lr = 1e-2
[optimizer]
plugin = "optim_fp32"
[data]
plugin = "data_indexed"
path = "train"
[parallel.tensor]
plugin = "parallel_tensor"
size = 2
[parallel.pipeline]
plugin = "parallel_pipeline"
size = 2
[parallel.data]
plugin = "parallel_zero"
size = 1
)");
    const Outcome training = here(MPIEXEC " -n 4 " + kTrainer + " train recipe.toml");
    ASSERT_EQ(training.code, 0) << text << training.text;
  }
  static void TearDownTestSuite() { delete folder_; }

  static Outcome here(const std::string& command) { return run("cd " + quoted(folder_->file("")) + " && " + command); }

  static Outcome on(const Layout& layout, const std::string& arguments) {
    const auto size = [](const char* table, int n) {
      return std::string(" --set parallel.") + table + ".size=" + std::to_string(n);
    };
    return here(MPIEXEC " -n " + std::to_string(layout.tensor * layout.pipeline * layout.data) + " " + kTrainer + " " +
                arguments + size("tensor", layout.tensor) + size("pipeline", layout.pipeline) + " " + layout.more);
  }

  inline static Folder* folder_ = nullptr;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {1, 1, 1, ""},
      {1, 2, 1, ""},
      {2, 2, 1, ""},
      {1, 4, 1, ""},
      {1, 1, 2, ""},
      {1, 2, 2, "--set parallel.data.stage=0"},
      // Weights in pieces, gathered for each layer.
      {1, 1, 2, "--set parallel.data.stage=3"},
      {2, 2, 2, "--set parallel.data.stage=3"},
      // More replicas than the training batch of 4 micro-batches can be shared by.
      {1, 1, 5, ""},
      // Two chunks a stage: the activations go round twice.
      {1, 2, 1, "--set parallel.pipeline.schedule=interleaved"},
  };
  return all;
}

TEST_F(Layouts, GreedyTextIsTheSame) {
  // More prompts than stages, of different lengths, one longer than a sample; each ends where it likes.
  const std::string prompts =
      " --prompt number --prompt 'and ag' --prompt 'number 144 é, and again number 169 é, a' --prompt nu --prompt 1 ";
  const std::string arguments = "generate --checkpoint run --greedy --tokens 24" + prompts;
  const Outcome alone = here(kTrainer + " " + arguments + "2>/dev/null");
  ASSERT_EQ(alone.code, 0);
  EXPECT_THAT(alone.text, AllOf(HasSubstr("number 1"), HasSubstr("é, and again")));
  const std::string draws = "generate --checkpoint run --ignore-end --seed 5 --temperature 0.8 --tokens 12" + prompts;
  const Outcome drawn = here(kTrainer + " " + draws + "2>/dev/null");
  for (const Layout& layout : layouts()) {
    const Outcome outcome = on(layout, arguments);
    EXPECT_EQ(outcome.code, 0) << text_of(layout);
    EXPECT_THAT(outcome.text, HasSubstr(alone.text)) << text_of(layout);
  }
  // Draws too: their random numbers are keyed by seed, request and position.
  const Outcome split = on({2, 2, 1, ""}, draws);
  EXPECT_THAT(split.text, HasSubstr(drawn.text));
}

TEST_F(Layouts, EvaluationIsTheSame) {
  const auto loss_of = [](const Outcome& outcome) {
    std::smatch found;
    const std::regex pattern("held_out.txt +([0-9]+) +([0-9]+) +([0-9.]+)");
    return std::regex_search(outcome.text, found, pattern) ? std::stod(found[3].str()) : std::nan("");
  };
  const std::string arguments = "eval --checkpoint run --data held_out.txt";
  const Outcome alone = here(kTrainer + " " + arguments);
  ASSERT_EQ(alone.code, 0) << alone.text;
  ASSERT_GT(loss_of(alone), 0) << alone.text;
  const std::vector<Layout> some = {{1, 2, 1, ""}, {2, 2, 1, ""}, {1, 2, 2, "--set parallel.data.stage=3"}};
  for (const Layout& layout : some) {
    const Outcome outcome = on(layout, arguments);
    EXPECT_EQ(outcome.code, 0) << text_of(layout) << outcome.text;
    EXPECT_NEAR(loss_of(outcome), loss_of(alone), 1e-4) << text_of(layout) << outcome.text;  // digits that are printed
  }
}

TEST_F(Layouts, AnswersAreTheSame) {
  std::string lines;
  for (int k = 0; k < 7; ++k) {
    lines +=
        "{\"context\":\"number " + std::to_string(k * k) +
        "\",\"choices\":[\"é, and again\",\"and\",\"a choice that is longer than a sample of training\"],\"gold\":0}\n";
  }
  folder_->write("questions.jsonl", lines);
  const auto answers = [&](const std::function<Outcome(const std::string&)>& start) {
    const Outcome outcome = start("eval --checkpoint run --choices questions.jsonl --details answers.txt");
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_TRUE(std::regex_search(outcome.text, std::regex("questions.jsonl +7 "))) << outcome.text;
    std::vector<double> values;
    std::ifstream in(folder_->file("answers.txt"));
    for (std::string text; in >> text;) values.push_back(std::stod(text.substr(text[0] == '[' ? 1 : 0)));
    return values;
  };
  const std::vector<double> alone =
      answers([&](const std::string& arguments) { return here(kTrainer + " " + arguments); });
  ASSERT_EQ(alone.size(), 21u);
  EXPECT_GT(alone[0], alone[2]);
  for (const Layout& layout : layouts()) {
    const std::vector<double> seen = answers([&](const std::string& arguments) { return on(layout, arguments); });
    ASSERT_EQ(seen.size(), alone.size()) << text_of(layout);
    for (std::size_t k = 0; k < alone.size(); ++k) EXPECT_NEAR(seen[k], alone[k], 1e-3) << text_of(layout) << " " << k;
  }
}

// A checkpoint's own layout needs no --set; replicas are what the world leaves.
TEST_F(Layouts, TheRecipesLayoutIsTheDefault) {
  const Outcome outcome =
      here(MPIEXEC " -n 4 " + kTrainer + " generate --checkpoint run --greedy --tokens 4 --prompt number");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  const Outcome twice =
      here(MPIEXEC " -n 8 " + kTrainer + " generate --checkpoint run --greedy --tokens 4 --prompt number");
  EXPECT_EQ(twice.code, 0) << twice.text;
  const Outcome odd =
      here(MPIEXEC " -n 3 " + kTrainer + " generate --checkpoint run --greedy --tokens 4 --prompt number");
  EXPECT_EQ(odd.code, 2) << odd.text;
  EXPECT_THAT(odd.text, HasSubstr("world 3 is not a multiple of tensor 2 × pipeline 2"));
}

TEST_F(Layouts, TokensAreNotSplitOverRanks) {
  const Outcome outcome =
      on({2, 1, 1, "--set parallel.tensor.sequence_parallel=true"}, "generate --checkpoint run --prompt number");
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("add --set parallel.tensor.sequence_parallel=false"));
}

// The recipe of a run on one rank names no strategy: those of the program serve.
TEST_F(Layouts, ARunOnOneRankIsReadByAnyLayout) {
  std::string none = "--set run.dir=alone --set train.train_iters=4";
  for (const char* kind : {"tensor", "pipeline", "data"}) {
    const std::string key = std::string(" --set parallel.") + kind;
    none += key + ".plugin=none" + key + ".size=1";
  }
  const Outcome training = here(kTrainer + " train recipe.toml " + none);
  ASSERT_EQ(training.code, 0) << training.text;
  const std::string arguments = "generate --checkpoint alone --greedy --tokens 6 --prompt number";
  const Outcome alone = here(kTrainer + " " + arguments + " 2>/dev/null");
  for (const Layout& layout : {Layout{2, 1, 1, ""}, Layout{1, 2, 1, ""}, Layout{1, 1, 2, ""}}) {
    const Outcome outcome = on(layout, arguments);
    EXPECT_EQ(outcome.code, 0) << text_of(layout) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(alone.text)) << text_of(layout);
  }
  const Outcome short_name = here(kTrainer + " " + arguments + " --set pipeline.size=2");
  EXPECT_EQ(short_name.code, 2) << short_name.text;
  EXPECT_THAT(short_name.text, HasSubstr("--set pipeline: unknown table; did you mean \"parallel.pipeline\"?"));
}

// A recipe with sequence parallelism has weights of the same layout: generation does without.
TEST_F(Layouts, SequenceParallelismOfTheRecipeIsSwitchedOff) {
  const std::string arguments = "generate --greedy --tokens 6 --prompt number --checkpoint ";
  const Outcome plain = here(kTrainer + " " + arguments + "run 2>/dev/null");
  const Outcome edited = here(
      "rm -rf parallel_run && cp -r run parallel_run && sed -i 's/sequence_parallel = false/sequence_parallel = true/' "
      "parallel_run/checkpoints/step_*/recipe.toml && grep -l 'sequence_parallel = true' "
      "parallel_run/checkpoints/step_*/recipe.toml");
  ASSERT_EQ(edited.code, 0) << edited.text;
  const Outcome outcome = here(MPIEXEC " -n 4 " + kTrainer + " " + arguments + "parallel_run");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr(plain.text), HasSubstr("sequence_parallel of the recipe is switched off")));
}

}  // namespace
}  // namespace espalier::cli_test
