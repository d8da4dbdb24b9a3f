// Launchers of another MPI, whose tasks do not know of each other. (tests/sdk: plugins that are refused.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

using testing::HasSubstr;

// mpiexec of another MPI, or srun without its PMI: every task would train the whole run by itself, into the same
// folder.
TEST(Launch, TasksThatSeeAWorldOfOneAreRefused) {
  for (const char* variable : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    TrainerJob job("alone");
    job.environment(std::string(variable) + "=3");
    const Ended ended = job.run(20);
    EXPECT_EQ(ended.code, 5) << variable << ": " << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("3"));
    EXPECT_THAT(ended.output, HasSubstr(variable));
    EXPECT_THAT(ended.output, testing::ContainsRegex("world of (1|one)")) << variable;
    EXPECT_FALSE(std::filesystem::exists(job.run_dir() / "metrics.jsonl"));
  }
}

TEST(Launch, OneTaskIsNoProblem) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}) {
    TrainerJob job("one_task");
    job.set("train.train_iters", "1").environment(std::string(variable) + "=1").expect(0);
  }
}

}  // namespace
}  // namespace espalier::testing_support
