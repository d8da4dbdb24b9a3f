// Tensor parallelism as users meet it: training under mpiexec, checkpoints that go on at another size, `numerics`.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/process.hpp"

namespace espalier::testing_support {
namespace {

namespace fs = std::filesystem;
using cli_test::quoted;

constexpr const char* kRecipe = R"(
[model]
layers = 2
hidden = 48
heads = 12
vocab_size = 259
seq_length = 12
attention_dropout = 0.1
hidden_dropout = 0.1
[train]
train_samples = 48
global_batch_size = 8
micro_batch_size = 2
lr = 1e-3
lr_decay_style = "constant"
threads = 1
[optimizer]
plugin = "optim_fp32"
[parallel.tensor]
plugin = "parallel_tensor"
[parallel.data]
plugin = "parallel_zero"
[data]
plugin = "synthetic"
[tokenizer]
plugin = "bytes"
[eval]
at_end = true
samples = 8
)";

class TensorTrainer : public testing::Test {
 protected:
  TensorTrainer() : folder_(fs::path(testing::TempDir()) / "tensor_trainer") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream(recipe()) << kRecipe;
  }
  std::string recipe() const { return (folder_ / "recipe.toml").string(); }

  /// `trainer WORDS` on `ranks` ranks with overrides; the exit code must be `code`.
  std::string trainer(int ranks, const std::string& words, const std::vector<std::string>& settings, int code = 0) {
    std::string command =
        std::string(MPIEXEC) + " -n " + std::to_string(ranks) + " " + quoted(TRAINER_EXE) + " " + words;
    for (const std::string& setting : settings) command += " --set " + quoted(setting);
    const auto outcome = cli_test::run(command);
    EXPECT_EQ(outcome.code, code) << command << "\n" << outcome.text;
    return outcome.text;
  }
  void train(const std::string& run, int ranks, std::vector<std::string> settings) {
    settings.push_back("run.dir=" + quoted_toml((folder_ / run).string()));
    trainer(ranks, "train " + quoted(recipe()), settings);
  }
  static std::string quoted_toml(const std::string& text) { return "\"" + text + "\""; }

  /// One number of every step of a run, in order.
  std::vector<double> series(const std::string& run, const std::string& key) const {
    std::vector<double> values;
    std::ifstream file(folder_ / run / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains(key)) values.push_back(record[key].get<double>());
    }
    return values;
  }
  void expect_same_run(const std::string& run, const std::string& truth, double tolerance) {
    for (const char* key : {"lm loss", "grad norm", "lm loss validation"}) {
      const auto found = series(run, key), expected = series(truth, key);
      ASSERT_FALSE(expected.empty()) << key;
      ASSERT_EQ(found.size(), expected.size()) << key;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], tolerance * expected[i]) << run << ": " << key << " " << i;
      }
    }
  }

  const fs::path folder_;
};

TEST_F(TensorTrainer, SizesGiveTheSameRun) {
  train("one", 1, {});
  train("two", 2, {"parallel.tensor.size=2"});
  train("two_sp", 4, {"parallel.tensor.size=2", "parallel.tensor.sequence_parallel=true"});
  EXPECT_EQ(series("one", "lm loss").size(), 6u);
  expect_same_run("two", "one", 1e-5);
  expect_same_run("two_sp", "one", 1e-5);
}

TEST_F(TensorTrainer, SixteenBitWeights) {
  for (const char* optimizer : {"optim_bf16", "optim_fp16"}) {
    const std::string plugin = std::string("optimizer.plugin=") + optimizer, name = optimizer;
    train(name + "_one", 1, {plugin});
    train(name + "_two", 2, {plugin, "parallel.tensor.size=2", "parallel.tensor.sequence_parallel=true"});
    expect_same_run(name + "_two", name + "_one", 5e-3);
  }
}

TEST_F(TensorTrainer, ACheckpointGoesOnAtAnotherSize) {
  train("straight", 1, {});
  const std::string half = "train.exit_interval=3";
  const std::vector<std::string> two = {"parallel.tensor.size=2"};
  const auto stop = [&](const std::string& run, int ranks, std::vector<std::string> settings) {
    settings.push_back(half);
    settings.push_back("run.dir=" + quoted_toml((folder_ / run).string()));
    trainer(ranks, "train " + quoted(recipe()), settings, 75);
  };
  stop("split_first", 2, two);
  train("split_first", 1, {});
  expect_same_run("split_first", "straight", 1e-5);
  stop("whole_first", 1, {});
  train("whole_first", 2, two);
  expect_same_run("whole_first", "straight", 1e-5);
}

TEST_F(TensorTrainer, NumericsAreOneRanks) {
  const std::string model = std::string(ESPALIER_FIXTURES_DIR) + "/model/tiny_a";
  const std::string words = "numerics --model " + quoted(model + "/hf") + " --batch " +
                            quoted(model + "/fwd_bwd.safetensors") + " --recipe " + quoted(recipe());
  const auto out = [&](const std::string& name) { return " --out " + quoted((folder_ / name).string()); };
  const std::string compare = " --compare " + quoted((folder_ / "one").string()) + " --tolerance 1e-4";
  trainer(1, words + out("one"), {});
  trainer(2, words + out("two") + compare, {"parallel.tensor.size=2"});
  trainer(4, words + out("four") + compare, {"parallel.tensor.size=4", "parallel.tensor.sequence_parallel=true"});
  // The comparison can fail.
  trainer(2, words + out("bf16") + compare, {"parallel.tensor.size=2", "optimizer.plugin=optim_bf16"}, 7);
}

TEST_F(TensorTrainer, TokensThatDoNotDivideAreRefusedAtTheStart) {
  const std::string text =
      trainer(2, "train " + quoted(recipe()),
              {"parallel.tensor.size=2", "parallel.tensor.sequence_parallel=true", "train.micro_batch_size=1",
               "model.seq_length=11", "run.dir=" + quoted_toml((folder_ / "odd").string())},
              2);
  EXPECT_NE(text.find("1 · 11 tokens"), std::string::npos) << text;
}

}  // namespace
}  // namespace espalier::testing_support
