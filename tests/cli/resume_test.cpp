// Going on from a checkpoint under a recipe that is not the one that wrote it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/process.hpp"
#include "unit/text/files.hpp"

namespace espalier::cli_test {
namespace {

namespace fs = std::filesystem;
using app::text_test::Folder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A run of 6 steps, stopped after 4.
class Resume : public ::testing::Test {
 protected:
  Resume() {
    folder_.write("recipe.toml", R"(
[run]
dir = "run"
[model]
layers = 2
hidden = 16
heads = 2
vocab_size = 258
seq_length = 8
[train]
train_samples = 24
global_batch_size = 4
micro_batch_size = 2
lr = 1e-2
[optimizer]
plugin = "optim_fp32"
[data]
plugin = "synthetic"
)");
    const Outcome first = train("--set train.exit_interval=4");
    EXPECT_EQ(first.code, 75) << first.text;
    EXPECT_THAT(first.text, HasSubstr("run the same command again to go on"));
  }

  Outcome train(const std::string& more) {
    return run("cd " + quoted(folder_.path().string()) + " && " + TRAINER_EXE + " train recipe.toml " + more);
  }
  /// The same while another process goes on with the run, in its folder; the outcome is that of the second one.
  Outcome train_beside_another(const std::string& more) {
    return run("cd " + quoted(folder_.path().string()) + " && ( " TRAINER_EXE
               " train recipe.toml --set train.train_samples=100000000 --set log.interval=1000000 2>/dev/null & p=$!; "
               "for i in $(seq 100); do grep -q continuing run/train.log && break; sleep 0.1; done; " TRAINER_EXE
               " train recipe.toml " + more + "; code=$?; kill $p; wait $p; exit $code )");
  }
  fs::path checkpoints() const { return folder_.path() / "run" / "checkpoints"; }

  Folder folder_;
};

TEST_F(Resume, GoesOnWithoutAWarningWhenNothingChanged) {
  const Outcome same = train("");
  EXPECT_EQ(same.code, 0);
  EXPECT_THAT(same.text, AllOf(HasSubstr("continuing after step 4"), Not(HasSubstr("warning"))));
}

// The weights have the same shapes with any number of heads, but mean something else.
TEST_F(Resume, OtherHeadsAreRefused) {
  const Outcome heads = train("--set model.heads=4");
  EXPECT_EQ(heads.code, 4);
  EXPECT_THAT(heads.text, HasSubstr("model.heads was 2, now 4"));
}

// Two runs share a folder of checkpoints: that is said, and what the first one has learned longest stays.
TEST_F(Resume, AnotherStartInTheSameFolderIsSaid) {
  const Outcome anew = train("--set checkpoint.load=none --set checkpoint.keep=1 --set train.exit_interval=3");
  EXPECT_EQ(anew.code, 75) << anew.text;
  EXPECT_THAT(anew.text, HasSubstr("checkpoints of later steps, up to step_4"));
  EXPECT_TRUE(fs::exists(checkpoints() / "step_4" / "manifest.json"));
  EXPECT_TRUE(fs::exists(checkpoints() / "step_3" / "manifest.json"));
}

// AdamW's state has the same names in every precision.
TEST_F(Resume, AnotherOptimizersStateIsRefusedUnlessAskedFor) {
  const Outcome strict = train("--set optimizer.plugin=optim_bf16");
  EXPECT_EQ(strict.code, 4);
  EXPECT_THAT(strict.text, AllOf(HasSubstr("that of optim_fp32, the recipe names optim_bf16"), HasSubstr("load_optimizer")));
  const Outcome convert = train("--set optimizer.plugin=optim_bf16 --set checkpoint.load_optimizer=convert");
  EXPECT_EQ(convert.code, 0) << convert.text;
}

TEST_F(Resume, AChangedKeyIsSaid) {
  const Outcome changed = train("--set train.lr=0.5 --set 'optimizer.betas=[0.8, 0.9]'");
  EXPECT_EQ(changed.code, 0);
  EXPECT_THAT(changed.text, AllOf(HasSubstr("train.lr was 0.01, now 0.5"), HasSubstr("optimizer.betas was [0.9, 0.95], now [0.8, 0.9]")));
}

// Steps would no longer be the samples they were: the run would seem to be over, or never end.
TEST_F(Resume, OtherBatchSizesAreRefused) {
  const Outcome batch = train("--set train.global_batch_size=8");
  EXPECT_EQ(batch.code, 2);
  EXPECT_THAT(batch.text, HasSubstr("has consumed 16 samples in 4 steps, but with these batch sizes (and ranks) 4 steps are 32 samples"));
  EXPECT_EQ(train("--set train.global_batch_size=8 --set checkpoint.load_optimizer=skip").code, 0);
}

TEST_F(Resume, TheSeedIsNamedBeforeTheData) { EXPECT_THAT(train("--set train.seed=7").text, HasSubstr("train.seed was 1234, now 7")); }

TEST_F(Resume, ALayerTooManyIsNotBlamedOnTheOptimizer) {
  const Outcome deeper = train("--set model.layers=3");
  EXPECT_EQ(deeper.code, 4);
  EXPECT_THAT(deeper.text, AllOf(HasSubstr("missing in the checkpoint: h.2."), Not(HasSubstr("load_optimizer"))));
}

TEST_F(Resume, LostCheckpointsAreNoFreshStart) {
  fs::remove_all(checkpoints() / "step_4");
  const Outcome lost = train("");
  EXPECT_EQ(lost.code, 4);
  EXPECT_THAT(lost.text, HasSubstr("names step_4, but no checkpoint is here"));
  EXPECT_EQ(train("--set checkpoint.load=none").code, 0);
}

TEST_F(Resume, DamageSaysWhatToDo) {
  std::ofstream(checkpoints() / "step_4" / "manifest.json") << "garbage";
  const Outcome damaged = train("");
  EXPECT_EQ(damaged.code, 4);
  EXPECT_THAT(damaged.text, AllOf(HasSubstr("not a manifest of a checkpoint"), HasSubstr("name an older one (checkpoint.load)")));
}

TEST_F(Resume, AShapeThatNoFileHoldsIsDamageToInspect) {
  const fs::path file = checkpoints() / "step_4" / "manifest.json";
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  std::string damaged = text.str();
  const auto shape = damaged.find("258", damaged.find("\"shape\""));
  damaged.replace(shape, 3, "9223372036854775807");
  std::ofstream(file) << damaged;
  const Outcome inspected = run(TRAINER_EXE " checkpoint inspect --tensors " + quoted(checkpoints().string()));
  EXPECT_EQ(inspected.code, 4) << inspected.text;
}

TEST_F(Resume, ARefusedStartLeavesTheRecipeOfTheRun) {
  const auto saved = [&] {
    std::stringstream text;
    text << std::ifstream(folder_.path() / "run" / "recipe.toml").rdbuf();
    return text.str();
  };
  const std::string before = saved();
  EXPECT_THAT(before, HasSubstr("heads = 2"));
  EXPECT_EQ(train("--set model.heads=4").code, 4);
  EXPECT_EQ(saved(), before);
}

// Two in one folder would mix their logs and replace each other's checkpoints.
TEST_F(Resume, TwoAtATimeAreRefused) {
  const Outcome both = train_beside_another("");
  EXPECT_EQ(both.code, 4) << both.text;
  EXPECT_THAT(both.text, HasSubstr("run: another process is training in this folder"));
  EXPECT_EQ(train("").code, 0) << "the lock goes with the process";
}

// Another run.dir, the same folder of checkpoints: each would remove what the other is writing.
TEST_F(Resume, TwoAtATimeInOneFolderOfCheckpointsAreRefused) {
  const Outcome both = train_beside_another("--set run.dir=other --set checkpoint.save=run/checkpoints");
  EXPECT_EQ(both.code, 4) << both.text;
  EXPECT_THAT(both.text, HasSubstr("run/checkpoints: another process is training in this folder; stop it, or name another folder (checkpoint.save)"));
}

// Numbers of a manifest that would lead out of its files.
TEST_F(Resume, AManifestWithWrongRangesIsDamage) {
  const fs::path manifest = checkpoints() / "step_4" / "manifest.json";
  std::ostringstream whole;
  whole << std::ifstream(manifest).rdbuf();
  for (const auto& [was, is] : {std::pair{"\"offset\": 0,", "\"offset\": -8,"}, {"\"dim\": -1", "\"dim\": 7"}, {"\"dim\": -1", "\"dim\": 1"}}) {
    std::string text = whole.str();
    const auto at = text.find(was);
    ASSERT_NE(at, std::string::npos) << was;
    text.replace(at, std::string_view(was).size(), is);
    std::ofstream(manifest, std::ios::trunc) << text;
    const Outcome damaged = train("");
    EXPECT_EQ(damaged.code, 4) << is << damaged.text;
    EXPECT_THAT(damaged.text, AllOf(HasSubstr("a slice has"), HasSubstr("name an older one"))) << is;
  }
}

TEST_F(Resume, APlaceThatCannotHoldCheckpointsIsNoticedBeforeStepOne) {
  folder_.write("file", "");
  const Outcome unwritable = train("--set checkpoint.save=file --set checkpoint.load=none");
  EXPECT_EQ(unwritable.code, 4);
  EXPECT_THAT(unwritable.text, AllOf(HasSubstr("checkpoint.save"), Not(HasSubstr(" iteration "))));
}

// The same command would begin again, so it must not be what is advised.
TEST_F(Resume, TheAdviceAtAStopIsTrueForANamedCheckpoint) {
  const Outcome stopped = train("--set checkpoint.load=run --set checkpoint.save=other --set train.exit_interval=5");
  EXPECT_EQ(stopped.code, 75) << stopped.text;
  EXPECT_THAT(stopped.text, HasSubstr("again with --set checkpoint.load=auto"));
}

}  // namespace
}  // namespace espalier::cli_test
