// A stream that does not wait for another shows in a training: the fake leaves out one wait at a time.
#include "runs.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 3;

TrainerJob two_ranks(const std::string& name) {
  TrainerJob job = quickstart_job(name, kSteps, [](TrainerJob& of) {
    of.ranks(2, 2).set("model.hidden", "24").set("model.seq_length", "12").set("train.micro_batch_size", "1");
  });
  on_cuda(job, 1).environment("ESPALIER_FAKE_CUDA_DEVICES=2");
  return job;
}

/// Whether the job ends in another way, with other numbers or with other weights than one in which every stream waits.
bool shows(const TrainerJob& right, TrainerJob& job) {
  const Ended ended = job.run(120);
  return ended.timed_out || ended.code != 0 || difference_of_steps(right.steps(), job.steps(), 1, kSteps) != "" ||
         difference_of_checkpoints(right.checkpoint(kSteps), job.checkpoint(kSteps)) != "";
}

TEST(EmulatedCudaRuns, AMissingWaitShows) {
  TrainerJob right = two_ranks("cuda_all_waits");
  right.expect(0, 120);
  TrainerJob again = two_ranks("cuda_all_waits_again");
  again.environment("ESPALIER_FAKE_CUDA_IGNORE_WAIT=1000000");
  EXPECT_FALSE(shows(right, again)) << "nothing was left out";
  // Some waits say what others imply already, and of a few this seed's order takes no notice: those do not show.
  constexpr int kEnough = 3;
  int seen = 0;
  std::string which;
  for (int n = 41; n <= 101 && seen < kEnough; n += 3) {
    TrainerJob job = two_ranks("cuda_without_wait_" + std::to_string(n));
    job.environment("ESPALIER_FAKE_CUDA_IGNORE_WAIT=" + std::to_string(n));
    if (shows(right, job)) {
      ++seen;
      which += " " + std::to_string(n);
    }
  }
  RecordProperty("seen", which);
  EXPECT_EQ(seen, kEnough) << "of 21; seen:" << which;
}

}  // namespace
}  // namespace espalier::testing_support
