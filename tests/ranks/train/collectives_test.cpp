// Ranks that ask for different collective operations are named instead of hanging (case X19).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

using testing::HasSubstr;

/// The last of the ranks gets other settings.
TrainerJob job_of(const std::string& name, int ranks, const std::vector<std::string>& others) {
  TrainerJob job(name);
  job.set("train.train_iters", "3").set("guard.interval", "0").ranks(ranks).set("debug.check_collectives", "true");
  job.set("debug.compare_recipes", "false");  // ranks differ on purpose
  job.set("train.global_batch_size", std::to_string(2 * ranks));
  std::vector<std::vector<std::string>> commands(static_cast<std::size_t>(ranks));
  if (!others.empty()) {
    commands.back() = job.trainer();
    for (const std::string& other : others) commands.back().insert(commands.back().end(), {"--set", other});
    job.rank_commands(commands);
  }
  return job;
}

TEST(Collectives, OtherBucketsOnOneOfTwoRanks) {
  TrainerJob job = job_of("buckets", 2, {"parallel.data.bucket_bytes=4096"});
  job.set("parallel.data.reduce_dtype", "\"bf16\"");
  const std::string text = job.expect(5, 20).output;
  EXPECT_THAT(text, HasSubstr("collective check: step 1, group data"));
  EXPECT_THAT(text,
              testing::ContainsRegex(
                  "rank 0 asked for reduce_scatter of [0-9]+ bf16 .*rank 1 asked for reduce_scatter of [0-9]+ bf16"));
  EXPECT_EQ(text.find("collective check:"), text.rfind("collective check:")) << "said once";
}

TEST(Collectives, AnotherTypeOnOneOfThreeRanks) {
  TrainerJob job = job_of("types", 3, {"parallel.data.reduce_dtype=bf16"});
  const std::string text = job.expect(5, 20).output;
  EXPECT_THAT(text, HasSubstr("step 1, group data"));
  EXPECT_THAT(
      text,
      testing::ContainsRegex(
          "ranks 0, 1 asked for reduce_scatter of [0-9]+ f32 \\([a-z0-9_.]+, gradient\\) in step 1, rank 2 asked for "
          "reduce_scatter of [0-9]+ bf16"));
}

TEST(Collectives, AnotherVerb) {
  TrainerJob job("verbs");
  job.set("guard.interval", "0").set("debug.check_collectives", "true").set("debug.compare_recipes", "false");
  job.ranks(2).set("parallel.tensor.plugin", "\"parallel_tensor\"").set("parallel.tensor.size", "2");
  std::vector<std::string> other = job.trainer();
  other.insert(other.end(), {"--set", "parallel.tensor.sequence_parallel=true"});
  job.rank_commands({{}, other});
  const std::string text = job.expect(5, 20).output;
  EXPECT_THAT(text, testing::ContainsRegex(
                        "step 1, group tensor.*rank 0 asked for all_reduce of .*rank 1 asked for reduce_scatter of "));
}

// One rank goes on to something else: the other says what it waits for.
TEST(Collectives, OneThatIsLeftOut) {
  TrainerJob job = job_of("left_out", 2, {"parallel.data.stage=0"});
  job.set("debug.collective_timeout", "2.0");
  const std::string text = job.expect(5, 20).output;
  EXPECT_THAT(text, testing::ContainsRegex(
                        "step 0, group data, its operation 1 in the step, rank 0 of 2: waited 2 s for all_gather of "));
}

// A rank that never comes: the others say what they wait for.
TEST(Collectives, ARankThatStandsStill) {
  TrainerJob job = job_of("still", 2, {});
  job.set("train.train_iters", "100000").set("debug.collective_timeout", "2.0");
  const auto process = job.start();
  ASSERT_TRUE(job.wait_for_step(*process, 2));
  const std::vector<pid_t> ranks = process->ranks("trainer");
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(kill(ranks[1], SIGSTOP), 0);
  const auto said = [&] { return process->output().find("not all ranks of the group have come") != std::string::npos; };
  for (int i = 0; i < 150 && !said(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(said()) << process->output();
  kill(ranks[1], SIGKILL);
  const Ended end = process->wait(20);
  EXPECT_FALSE(end.timed_out);
  EXPECT_NE(end.code, 0);
  EXPECT_THAT(end.output,
              testing::ContainsRegex(
                  "step [0-9]+, group [a-z, ]+, its operation [0-9]+ in the step, rank 0 of 2: waited 2 s for"));
}

// The check changes nothing but time, with every kind of group.
TEST(Collectives, SoundRunsAreLeftAlone) {
  for (const char* split : {"pipeline", "data"}) {
    TrainerJob off(std::string("check_off_") + split), on(std::string("check_on_") + split);
    for (TrainerJob* job : {&off, &on}) {
      job->set("train.train_iters", "4").ranks(4).set("optimizer.plugin", "\"optim_bf16\"");
      job->set("parallel.tensor.plugin", "\"parallel_tensor\"").set("parallel.tensor.size", "2");
      if (split == std::string("pipeline")) {
        job->set("parallel.pipeline.plugin", "\"parallel_pipeline\"").set("parallel.pipeline.size", "2");
      }
      job->set("eval.interval", "2").set("eval.samples", "4").set("guard.interval", "1");
    }
    off.expect(0);
    on.set("debug.check_collectives", "true").expect(0);
    EXPECT_EQ(difference_of_steps(off.steps(), on.steps(), 1, 4), "");
    EXPECT_EQ(difference_of_checkpoints(off.checkpoint(4), on.checkpoint(4)), "");
  }
}

}  // namespace
}  // namespace espalier::testing_support
