#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "unit/config/support.hpp"

namespace espalier::app {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int code = -1;
  std::string text;  ///< both outputs, as a terminal shows them
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) outcome.text.append(buffer, count);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Outcome trainer(const std::string& arguments) { return shell(std::string(TRAINER_EXE) + " " + arguments); }

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

class Program : public ::testing::Test {
 protected:
  RecipeFolder folder_;
  std::string small_ = folder_.write("small.toml", kSmall);
};

TEST_F(Program, ASoundRecipePasses) {
  const Outcome outcome = trainer("config check " + small_);
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("small.toml: good; "));
}

// G01: no data is opened, so the missing file below is not what is reported.
TEST_F(Program, AMistypedKeyEndsWithCodeTwoBeforeDataIsOpened) {
  const std::string file =
      folder_.write("typo.toml", std::string(kSmall) + "path = \"/nowhere/data\"\n[eval]\nintervl = 1\n");
  for (const char* command : {"config check ", "train "}) {
    const Outcome outcome = trainer(command + file + " --set data.plugin=data_indexed");
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("typo.toml:19:1: eval.intervl: unknown key; did you mean \"interval\"?"),
                                    Not(HasSubstr("/nowhere/data"))));
  }
}

// G04.
TEST_F(Program, OptionOverrideAndRecipeHaveErrorsOfOneForm) {
  const Outcome option = trainer("config check " + small_ + " --sett train.lr=1");
  EXPECT_EQ(option.code, 2);
  EXPECT_THAT(option.text,
              HasSubstr("command line: --sett: unknown option of \"config check\"; did you mean \"--set\"?"));
  const Outcome override_ = trainer("config check " + small_ + " --set optim.lrr=1");
  EXPECT_EQ(override_.code, 2);
  EXPECT_THAT(override_.text, HasSubstr("--set optim: unknown table; did you mean \"optimizer\"?"));
  const Outcome file = trainer("config check " + folder_.write("bad.toml", std::string(kSmall) + "[optim]\nlrr = 1\n"));
  EXPECT_EQ(file.code, 2);
  EXPECT_THAT(file.text, HasSubstr("bad.toml:17:2: optim: unknown table; did you mean \"optimizer\"?"));
}

// G07: the printed recipe names the source of each value, and is a recipe itself.
TEST_F(Program, ExplainPrintsARecipeWithSources) {
  const Outcome first = shell("ESPALIER_SET='train.seed=5; eval.interval=7' " TRAINER_EXE " config explain " + small_ +
                              " --set train.lr=0.5");
  ASSERT_EQ(first.code, 0) << first.text;
  EXPECT_THAT(first.text, AllOf(HasSubstr("seed = 5  # ESPALIER_SET\n"), HasSubstr("lr = 0.5  # --set\n"),
                                HasSubstr("layers = 6  # " + small_ + ":2\n"),
                                HasSubstr("clip_grad = 1.0  # default\n"), HasSubstr("weight_decay = 0.1  # default\n"),
                                HasSubstr("#   optimizer.weight_decay → optim_bf16\n")));
  EXPECT_THAT(first.text, HasSubstr("warm-up ends at 0, minimum reached at 1000, training ends at 1000 samples"));
  // P17: both groups with counts. kSmall: 6 blocks of 4 matrices and 8 vectors, embedding, its norm, final norm.
  EXPECT_THAT(first.text,
              AllOf(HasSubstr("# weight decay: 25 parameters, "), HasSubstr("# no weight decay: 52 parameters, "),
                    HasSubstr("#   h.*.mlp.dense_h_to_4h.weight\n")));
  const Outcome second = trainer("config explain " + folder_.write("effective.toml", first.text));
  ASSERT_EQ(second.code, 0) << second.text;
  EXPECT_THAT(second.text, AllOf(HasSubstr("seed = 5 "), HasSubstr("lr = 0.5 "), HasSubstr("interval = 7 ")));
}

TEST_F(Program, ExitCodesAreThoseOfTheTable) {
  EXPECT_EQ(trainer("").code, 2);
  EXPECT_EQ(trainer("trian").code, 2);
  EXPECT_EQ(trainer("--help").code, 0);
  EXPECT_EQ(trainer("config check --help").code, 0);
  EXPECT_EQ(trainer("--version").text.rfind("espalier ", 0), 0u);
  EXPECT_EQ(trainer("config check " + small_ + " --set optimizer.plugin=optim_bf61").code, 3);
  EXPECT_EQ(trainer("config check /nowhere/recipe.toml").code, 4);
  EXPECT_THAT(trainer("config check " + small_ + " --set optimizer.plugin=optim_bf61").text,
              AllOf(HasSubstr("--set optimizer.plugin: "), HasSubstr("optim_bf16")));
  EXPECT_NE(shell(TRAINER_EXE " config keys > /dev/full").code, 0);
}

TEST_F(Program, OneWordChangesTheOptimizer) {
  const Outcome outcome = trainer("config explain " + small_ + " --set optimizer.plugin=optim_fp16");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("loss_scale_window ="));
}

TEST_F(Program, PluginsAreListedAndInspected) {
  EXPECT_THAT(trainer("plugins list").text,
              AllOf(HasSubstr("optim_bf16"), HasSubstr("optim_fp16"), HasSubstr("searched:")));
  const Outcome one = trainer("plugins inspect optim_bf16");
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.text, AllOf(HasSubstr("options of [optimizer]"), HasSubstr("betas"), HasSubstr("[0.9, 0.95]")));
  EXPECT_EQ(trainer("plugins inspect optim_nothing").code, 3);
  EXPECT_THAT(trainer("plugins inspect synthetic").text, AllOf(HasSubstr("built in"), HasSubstr("dataset \"synthetic\"")));
}

TEST_F(Program, DoctorSpeaksOfTheMachine) {
  const Outcome outcome = trainer("doctor");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("instruction sets"), HasSubstr("MPI"), HasSubstr("CUDA"), HasSubstr("optim_bf16"),
                                  ContainsRegex("device +cpu: copies of 64 MiB: [0-9]+[.][0-9] GB/s within")));
}

TEST_F(Program, TwoRanksSayItOnce) {
  const Outcome outcome = shell(std::string(MPIEXEC) + " -n 2 " TRAINER_EXE " train " + small_ +
                                " --set parallel.data.plugin=parallel_zero --set train.lrr=1");
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_EQ(count(outcome.text, "train.lrr"), 1) << outcome.text;
}

// What is wrong with a file that all ranks open keeps its exit code, and is not told by each.
TEST_F(Program, TwoRanksTellOfMissingDataOnce) {
  const std::string dir = small_ + ".run";
  const Outcome outcome = shell(std::string(MPIEXEC) + " -n 2 " TRAINER_EXE " train " + small_ +
                                " --set parallel.data.plugin=parallel_zero --set data.plugin=data_indexed"
                                " --set data.path=/nowhere/data --set 'optimizer.betas=[0.9, 0.95]' --set run.dir=" + dir);
  EXPECT_EQ(outcome.code, 4) << outcome.text;
  EXPECT_EQ(count(outcome.text, "neither /nowhere/data.idx"), 1) << outcome.text;
  EXPECT_EQ(count(outcome.text, "rank 0: "), 1) << outcome.text;
}

TEST(Docs, RecipeReferenceIsWhatTheProgramPrints) {
  std::ifstream in(ESPALIER_SOURCE_DIR "/docs/recipe.md");
  std::ostringstream text;
  text << in.rdbuf();
  std::string keys = trainer("config keys").text;
  while (keys.ends_with('\n')) keys.pop_back();
  ASSERT_GT(keys.size(), 1000u);
  EXPECT_NE(text.str().find(keys), std::string::npos)
      << "docs/recipe.md, section \"All keys\", is to hold the output of: trainer config keys";
}

}  // namespace
}  // namespace espalier::app
