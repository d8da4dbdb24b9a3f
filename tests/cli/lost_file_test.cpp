#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/process.hpp"
#include "unit/text/files.hpp"

namespace espalier::cli_test {
namespace {

using app::text_test::Folder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A mapped file that is cut ends a process by a bus error, long after it was found whole at the start.
TEST(LostFile, DataCutShortDuringTrainingIsNamed) {
  const Folder folder;
  std::string text;
  for (int k = 0; k < 20'000; ++k) text += "number " + std::to_string(k) + "\n";
  folder.write("a.txt", text);
  folder.write("recipe.toml", R"(
[model]
layers = 1
hidden = 16
heads = 2
vocab_size = 258
seq_length = 8
[train]
train_samples = 100000000
global_batch_size = 2
micro_batch_size = 1
lr = 1e-3
[optimizer]
plugin = "optim_fp32"
[data]
plugin = "data_indexed"
path = "a"
split = "1"
[parallel.data]
plugin = "parallel_zero"
[run]
dir = "run"
)");
  const std::string here = "cd " + quoted(folder.path().string()) + " && ", trainer = TRAINER_EXE;
  for (const std::string launcher : {"", MPIEXEC " -n 2 "}) {
    ASSERT_EQ(run(here + "rm -rf run && " + trainer + " preprocess --input a.txt --output a").code, 0);
    const Outcome outcome = run(here + launcher + trainer +
                                " train recipe.toml > log 2>&1 & p=$!; cd " + quoted(folder.path().string()) +
                                "; for i in $(seq 200); do grep -q iteration run/train.log 2>/dev/null && break; sleep 0.1; done; "
                                "truncate -s 64 a.bin; wait $p; code=$?; grep -v ' iteration ' log; exit $code");
    EXPECT_EQ(outcome.code, 4) << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("/a.bin: was cut short while it was in use"), Not(HasSubstr("Bus error"))));
  }
}

}  // namespace
}  // namespace espalier::cli_test
