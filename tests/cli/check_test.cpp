// `config check` and `config explain` for the grid that a recipe is meant for, without a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "cli/process.hpp"
#include "unit/config/support.hpp"

namespace espalier::app {
namespace {

using cli_test::Outcome;
using cli_test::run;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kConfigs = std::string(ESPALIER_SOURCE_DIR) + "/configs/";

/// Six blocks of twelve heads, every strategy a plugin.
constexpr std::string_view kGridRecipe = R"([model]
layers = 6
hidden = 96
heads = 12
vocab_size = 260
seq_length = 32
[train]
train_samples = 1000
global_batch_size = 24
micro_batch_size = 1
lr = 1
[optimizer]
plugin = "optim_bf16"
[data]
plugin = "synthetic"
[parallel.tensor]
plugin = "parallel_tensor"
[parallel.pipeline]
plugin = "parallel_pipeline"
[parallel.data]
plugin = "parallel_zero"
)";

Outcome trainer(const std::string& arguments) {
  return run("ESPALIER_PLUGIN_PATH=" CLI_PLUGIN_DIR " " TRAINER_EXE " " + arguments);
}

/// Whether the build has the provider for CUDA, which depends on the toolkit.
bool has_cuda() { return std::filesystem::exists(ESPALIER_PLUGIN_DIR "/libkernels_fused_cuda.so"); }

class Check : public testing::Test {
 protected:
  Outcome check(const std::string& arguments) { return trainer("config check " + file_ + " " + arguments); }

  RecipeFolder folder_;
  std::string file_ = folder_.write("grid.toml", kGridRecipe);
};

// An option that the others make void is no guess of the program's to drop.
TEST_F(Check, OptionsThatContradictAreRefused) {
  const std::string fixed = "--set optimizer.plugin=optim_fp16 --set optimizer.loss_scale=128";
  EXPECT_EQ(check(fixed).code, 0);
  const Outcome scale = check(fixed + " --set optimizer.hysteresis=3");
  EXPECT_EQ(scale.code, 2) << scale.text;
  EXPECT_THAT(scale.text, HasSubstr("--set optimizer.hysteresis: is of the dynamic loss scale"));
  const Outcome gathers = check("--world 2 --set parallel.data.stage=2 --set parallel.data.prefetch=3");
  EXPECT_EQ(gathers.code, 2) << gathers.text;
  EXPECT_THAT(gathers.text, HasSubstr("--set parallel.data.prefetch: is of stage 3"));
}

TEST_F(Check, TheTrueRunIsAcceptedAndItsStagesArePrinted) {
  const Outcome outcome = trainer("config check --world 384 " + kConfigs + "bloom-176b.toml");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(
      outcome.text,
      HasSubstr("good; 176,247,271,424 parameters, world 384 = tensor 4 × data 8 × pipeline 12, 115,311 steps"));
  EXPECT_THAT(
      outcome.text,
      HasSubstr(has_cuda() ? "note: a check starts no device: the limits of provider kernels_fused for device cuda "
                             "were not checked"
                           : "note: provider kernels_fused for device cuda is not installed here: its options "
                             "and limits were not checked"));
  // 72 slots, 6 a stage: 5 blocks beside the embedding and the head, 6 elsewhere. (12 h² + 13 h) a block, a quarter of
  // what is split; the ends hold a quarter of the embedding, stage 0 two norms' vectors more than the last stage.
  const auto line = [&](const std::string& stage) {
    std::smatch match;
    const std::regex pattern("\n *" + stage + "  [^\n]*");
    return std::regex_search(outcome.text, match, pattern) ? match.str() : "";
  };
  EXPECT_THAT(line("0"),
              AllOf(HasSubstr("0 to 31 "), HasSubstr("embedding, blocks 0 to 4 "), HasSubstr("3,982,551,552")));
  EXPECT_THAT(line("1"), AllOf(HasSubstr("32 to 63 "), HasSubstr("blocks 5 to 10 "), HasSubstr("3,700,042,752")));
  EXPECT_THAT(line("10"), AllOf(HasSubstr("blocks 59 to 64 "), HasSubstr("3,700,042,752")));
  EXPECT_THAT(line("11"),
              AllOf(HasSubstr("352 to 383 "), HasSubstr("blocks 65 to 69, head "), HasSubstr("3,982,551,552")));
  EXPECT_EQ(line("12"), "");
  // Two bytes of weights, four of gradients, twelve of state over eight ranks.
  EXPECT_THAT(line("1"), AllOf(HasSubstr(" 6.89 GiB"), HasSubstr(" 13.78 GiB"), HasSubstr(" 5.17 GiB")));
}

TEST_F(Check, TheOtherRecipesAreAcceptedToo) {
  for (const char* arguments : {"bloom-560m.toml --world 32", "bloom-1b1.toml --world 32", "bloom-1b7.toml --world 64",
                                "bloom-3b.toml --world 128", "bloom-7b1.toml --world 128", "quickstart.toml --world 2",
                                "ablation/bf16.toml", "ablation/fp16.toml", "bloom-twin.toml --world 12"}) {
    const Outcome outcome = trainer("config check " + kConfigs + arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << '\n' << outcome.text;
  }
}

TEST_F(Check, TheTrueRunIsRefusedByTrainWhereItsProviderOrDeviceIsMissing) {
  if (std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "there is a GPU";
  const Outcome outcome =
      trainer("train " + kConfigs + "bloom-176b.toml --set parallel.tensor.size=1 --set parallel.pipeline.size=1");
  if (has_cuda()) {
    EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::device)) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("no CUDA device"));
    return;
  }
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::plugin)) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("backend.plugin: plugin \"kernels_fused_cuda\": find:"),
                    HasSubstr("\"kernels_fused\" is there, but not its variant for the device \"cuda\"")));
}

TEST_F(Check, AMistypedProviderIsNotTakenForAMissingOne) {
  const Outcome outcome =
      trainer("config check --world 384 " + kConfigs + "bloom-176b.toml --set backend.plugin=kernels_fuesd");
  EXPECT_EQ(outcome.code, static_cast<int>(ExitCode::plugin)) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("plugin \"kernels_fuesd_cuda\": find:"));
}

// X18: heads bound the tensor group, layers the pipeline.
TEST_F(Check, TwelveHeadsAndSixLayers) {
  EXPECT_EQ(check("--world 4 --set parallel.tensor.size=4").code, 0);
  const Outcome heads = check("--world 8 --set parallel.tensor.size=8");
  EXPECT_EQ(heads.code, 2);
  EXPECT_THAT(heads.text, HasSubstr("parallel.tensor.size: 12 heads cannot be split over tensor 8"));
  // Uneven stages are legal, and said.
  const Outcome uneven = check("--world 4 --set parallel.pipeline.size=4");
  EXPECT_EQ(uneven.code, 0) << uneven.text;
  EXPECT_THAT(uneven.text, AllOf(HasSubstr("embedding, blocks 0 to 1 "), HasSubstr(" block 5, head ")));
  const Outcome layers = check("--world 7 --set parallel.pipeline.size=7 --set train.global_batch_size=21");
  EXPECT_EQ(layers.code, 2);
  EXPECT_THAT(layers.text, HasSubstr("parallel.pipeline.size: 6 layers leave a stage of pipeline 7 empty"));
}

// P14: what used to end a run at its first reduction ends its check, with the place in the recipe.
TEST_F(Check, StrategiesAndOptimizersThatDoNotFitAreRefusedWithoutData) {
  const std::string odd =
      "--set optimizer.plugin=odd --set data.plugin=data_indexed --set 'data.train=[{path=\"/nowhere\"}]' ";
  const Outcome master = check(odd + "--set optimizer.lacks=master");
  EXPECT_EQ(master.code, 2) << master.text;
  EXPECT_THAT(master.text, HasSubstr("grid.toml:21:1: parallel.data: parallel_zero: the true weights must be f32"));
  const Outcome sums = check(odd + "--set optimizer.lacks=sums --world 2");
  EXPECT_EQ(sums.code, 2) << sums.text;
  EXPECT_THAT(sums.text, HasSubstr("parallel_zero: gradients are accumulated in f32, the optimizer asks for bf16"));
  EXPECT_EQ(check(odd + "--set optimizer.lacks=elements --world 2 --set parallel.tensor.size=2").code, 0)
      << "whole matrices of split ones, one owner each";
  EXPECT_EQ(check(odd + "--set optimizer.lacks=elements --world 2").code, 0) << "whole matrices, one owner each";
  const Outcome alone = check(odd + "--set parallel.data.plugin=none --world 1");
  EXPECT_EQ(alone.code, 2) << alone.text;
}

// P14, its other half: a pipeline of one stage is no pipeline, whatever its schedule.
TEST_F(Check, APipelineOfOneStageIsNone) {
  const auto losses = [&](const std::string& name, const std::string& more) {
    const std::string folder = folder_.write(name + "/keep", "");
    const std::string dir = folder.substr(0, folder.size() - 5);
    const Outcome outcome = trainer("train " + file_ +
                                    " --set train.train_samples=72 --set train.lr=1e-2 --set train.micro_batch_size=4 "
                                    "--set backend.plugin=kernels_fused" +
                                    " --set run.dir=" + dir + " " + more);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    std::ifstream file(dir + "/metrics.jsonl");
    std::string found;
    const std::regex pattern("\"(lm loss|grad norm)\":[0-9.]+");
    for (std::string line; std::getline(file, line);) {
      for (std::sregex_iterator at(line.begin(), line.end(), pattern), end; at != end; ++at) found += at->str() + "\n";
    }
    return found;
  };
  const std::string none = losses("none", "--set parallel.pipeline.plugin=none");
  EXPECT_EQ(std::count(none.begin(), none.end(), '\n'), 2 * 3) << none;
  for (const std::string schedule : {"gpipe", "1f1b", "zero_bubble"}) {
    EXPECT_EQ(losses(schedule, "--set parallel.pipeline.schedule=" + schedule), none) << schedule;
  }
}

// What only the strategies know, of every stage and every count of micro-batches.
TEST_F(Check, WhatTheStrategiesRefuseIsRefusedHere) {
  const Outcome parts = check("--world 2 --set parallel.pipeline.size=2 --set 'parallel.pipeline.parts=[1,2]'");
  EXPECT_EQ(parts.code, 2) << parts.text;
  EXPECT_THAT(parts.text, HasSubstr("parallel.pipeline.parts: 3 layers in all, the model has 8"));
  const Outcome rows = check(
      "--world 4 --set parallel.tensor.size=4 --set parallel.tensor.sequence_parallel=true --set model.seq_length=30");
  EXPECT_EQ(rows.code, 2) << rows.text;
  EXPECT_THAT(rows.text, HasSubstr("grid.toml:17:1: parallel.tensor: "));
}

TEST_F(Check, APluginThatCommunicatesWhileItIsMadeIsSaid) {
  const Outcome outcome = check("--set parallel.pipeline.plugin=odd");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("note: not checked further: a plugin communicates while it is made"),
                                  HasSubstr("pipeline"), HasSubstr("plugin \"odd\"")));
}

// Four ranks would say it four times; and the world is theirs.
TEST_F(Check, UnderALauncherTheFirstRankSpeaksForAll) {
  const auto said_by_four = [&](const std::string& command, const std::string& what) {
    const Outcome outcome = run(MPIEXEC " -n 4 " TRAINER_EXE " " + command);
    int count = 0;
    for (auto at = outcome.text.find(what); at != std::string::npos; at = outcome.text.find(what, at + 1)) ++count;
    EXPECT_EQ(count, 1) << outcome.text;
    return outcome.code;
  };
  EXPECT_EQ(said_by_four("config check " + file_ + " --set parallel.tensor.size=2",
                         "world 4 = tensor 2 × data 2 × pipeline 1"),
            0);
  EXPECT_EQ(said_by_four("config explain " + file_, "# grid: world 4 = "), 0);
  EXPECT_EQ(said_by_four("plugins list", "\nsearched:"), 0);
  EXPECT_EQ(said_by_four("plugins inspect optim_bf16", "build: "), 0);
  EXPECT_EQ(said_by_four("doctor", "PMI_SIZE = 4 tasks"), 0);
  EXPECT_EQ(said_by_four("config check " + file_ + " --set optimizer.plugin=optim_bf61", "did you mean"), 3);
}

TEST_F(Check, AHundredThousandLayersEndInSeconds) {
  const Outcome outcome = check("--set model.layers=100000");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("note: activations were not computed: a stage has more than 1000 layers"));
}

TEST_F(Check, ExplainPrintsGroupsAndStages) {
  const Outcome outcome =
      trainer("config explain " + file_ +
              " --world 12 --set model.layers=7 --set parallel.tensor.size=2 --set parallel.pipeline.size=3"
              " --set 'parallel.pipeline.cut=\"slots\"'");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              HasSubstr("# grid: world 12 = tensor 2 × data 2 × pipeline 3\n"
                        "#   tensor innermost, then data, pipeline outermost: rank = tensor + 2 · (data + 2 · stage)\n"
                        "#   tensor groups (6 of 2): [0 1] [2 3] [4 5] [6 7] [8 9] [10 11]\n"
                        "#   data groups (6 of 2): [0 2] [1 3] [4 6] [5 7] [8 10] [9 11]\n"
                        "#   pipeline groups (4 of 3): [0 4 8] [1 5 9] [2 6 10] [3 7 11]\n"));
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("#       0  0 to 3         embedding, blocks 0 to 1 "),
                                  HasSubstr("#       1  4 to 7         blocks 2 to 4 "),
                                  HasSubstr("#       2  8 to 11        blocks 5 to 6, head ")));
  // What is printed is a recipe.
  const Outcome again = trainer("config check --world 12 " + folder_.write("effective.toml", outcome.text));
  EXPECT_EQ(again.code, 0) << again.text;
}

// The true run's grid, with a small model.
TEST_F(Check, ExplainNamesTheGroupsOf384Ranks) {
  const Outcome outcome =
      trainer("config explain " + file_ +
              " --world 384 --set model.layers=70 --set parallel.tensor.size=4 --set parallel.pipeline.size=12");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("tensor groups (96 of 4): [0 1 2 3] [4 5 6 7] ... [380 381 382 383]\n"),
                    HasSubstr("data groups (48 of 8): [0 4 8 12 16 20 24 28] [1 5 9 13 17 21 25 29] ... "
                              "[355 359 363 367 371 375 379 383]\n"),
                    HasSubstr("pipeline groups (32 of 12): [0 32 64 96 128 160 192 224 256 288 320 352] ")));
}

}  // namespace
}  // namespace espalier::app
