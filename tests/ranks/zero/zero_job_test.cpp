// Whole runs of the trainer with gradients and weights sharded, and checkpoints between stages.
#include <gtest/gtest.h>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

TrainerJob job_of(const std::string& name, int stage) {
  TrainerJob job(name);
  job.ranks(2, stage).set("train.train_iters", "8").set("optimizer.plugin", "\"optim_bf16\"");
  job.set("backend.plugin", "\"kernels_fused\"").set("eval.interval", "4").set("eval.samples", "5");
  return job;
}

TEST(ZeroJob, Stages2And3LearnAsOneRank) {
  TrainerJob one("zero_one"), two("zero_two"), three("zero_three");
  for (TrainerJob* job : {&one, &two, &three}) {
    job->set("train.train_iters", "8").set("eval.interval", "4").set("eval.samples", "5");
  }
  two.ranks(2, 2);
  three.ranks(2, 3);
  for (TrainerJob* job : {&one, &two, &three}) job->expect(0);
  EXPECT_EQ(difference_of_steps(two.steps(), three.steps(), 1, 8), "");
  EXPECT_EQ(difference_of_checkpoints(two.checkpoint(8), three.checkpoint(8)), "");
  const auto a = one.steps(), b = three.steps();
  ASSERT_EQ(a.size(), 8u);
  ASSERT_EQ(b.size(), 8u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double loss = number(a[i], "lm loss");
    EXPECT_NEAR(number(b[i], "lm loss"), loss, 1e-5 * loss) << "step " << i + 1;
  }
}

// One micro-batch a step, where all stages are equal to the bit: a run that changes stage at a checkpoint is the run
// that does not.
TEST(ZeroJob, CheckpointsGoFromStageToStage) {
  TrainerJob straight = job_of("zero_straight", 1), changed = job_of("zero_changed", 3);
  for (TrainerJob* job : {&straight, &changed}) job->set("train.global_batch_size", "4");
  straight.expect(0);
  changed.set("train.exit_interval", "3").expect(75);
  changed.ranks(2, 0).expect(75);
  changed.ranks(2, 3).expect(0);
  EXPECT_EQ(difference_of_steps(straight.steps(), changed.steps(), 1, 8), "");
  EXPECT_EQ(difference_of_checkpoints(straight.checkpoint(8), changed.checkpoint(8)), "");
}

}  // namespace
}  // namespace espalier::testing_support
