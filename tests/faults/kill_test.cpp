// C01: kill -9 at any moment, saves included: the next start finds a complete checkpoint, goes on to the bit, and each
// step is in metrics.jsonl once. KILL_MOMENTS says how many moments a program tries.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 24;

void prepare(TrainerJob& job, int ranks, bool async) {
  job.set("train.train_iters", std::to_string(kSteps)).set("checkpoint.save_interval", "1").set("checkpoint.keep", "3");
  job.set("model.attention_dropout", "0.1")
      .set("model.hidden_dropout", "0.1")
      .set("optimizer.plugin", "\"optim_bf16\"");
  job.set("checkpoint.async", async ? "true" : "false").ranks(ranks);
}

void expect_recovery(int ranks, int moments) {
  TrainerJob straight("kill_straight");
  prepare(straight, ranks, true);
  straight.expect(0);
  const auto expected = straight.steps();
  for (int seed = 1; seed <= moments; ++seed) {
    std::mt19937 random(static_cast<unsigned>(1000 * ranks + seed));
    TrainerJob job("kill_" + std::to_string(seed));
    prepare(job, ranks, seed % 2 == 0);
    // Killed twice: a start after a kill may be killed as well.
    for (int round = 0, step = 0; round < 2; ++round) {
      step += 1 + static_cast<int>(random() % (kSteps / 2 - 2));
      const auto process = job.start();
      ASSERT_TRUE(job.wait_for_step(*process, step)) << process->output();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
      const auto members = process->ranks("trainer");
      if (!members.empty()) ::kill(members[random() % members.size()], SIGKILL);
      const Ended ended = process->wait(30);
      ASSERT_FALSE(ended.timed_out) << "seed " << seed << ": " << ended.output;
    }
    job.expect(0);
    EXPECT_EQ(difference_of_steps(expected, job.steps(), 1, kSteps), "") << "ranks " << ranks << ", seed " << seed;
    EXPECT_EQ(difference_of_checkpoints(straight.checkpoint(kSteps), job.checkpoint(kSteps)), "")
        << "ranks " << ranks << ", seed " << seed;
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Kill, OneRankGoesOnToTheBit) { expect_recovery(1, KILL_MOMENTS); }
TEST(Kill, TwoRanksGoOnToTheBit) { expect_recovery(2, KILL_MOMENTS); }

}  // namespace
}  // namespace espalier::testing_support
