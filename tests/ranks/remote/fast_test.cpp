// Nothing in app, core or the strategies reads device memory, forgets to wait, or uses a host buffer again too early:
// the remote device would show it.
#include <cmath>

#include "remote_jobs.hpp"

namespace espalier::testing_support {
namespace {

TEST(Remote, OneRankOfEachOptimizer) {
  for (const std::string optimizer : {"optim_fp32", "optim_bf16", "optim_fp16"}) {
    expect_remote_equal("remote_one_" + optimizer, 2,
                        both(key("optimizer.plugin", "\"" + optimizer + "\""), key("train.recompute", "\"full\"")),
                        optimizer == "optim_bf16" ? run_with_resume : run_through);
  }
}

TEST(Remote, TensorAndZero2) { expect_remote_equal("remote_tensor", 2, both(zero(2, 2), tensor(2)), run_through); }

TEST(Remote, DataRanks) {
  for (int stage = 0; stage <= 2; ++stage) {
    expect_remote_equal("remote_data_" + std::to_string(stage), 2, zero(stage), run_through);
  }
  // So few slots for so many layers that they are used again while work on them may still be queued.
  expect_remote_equal("remote_data_3", 2,
                      both(zero(3), both(key("model.layers", "6"), key("parallel.data.keep_gathered", "0"))),
                      run_through);
}

TEST(Remote, Pipeline) { expect_remote_equal("remote_pipeline", 2, both(zero(1, 2), pipeline("1f1b")), run_through); }

/// Times the host has waited for the device, of each rank.
std::vector<long> waits_of(int steps, const Change& change, int ranks) {
  TrainerJob job = remote_job("remote_waits_" + std::to_string(steps), change);
  const std::string file = (job.folder() / "waits").string();
  job.set("backend.plugin", "\"remote\"").set("backend.waits", "\"" + file + "\"");
  job.set("train.train_iters", std::to_string(steps)).set("eval.interval", "0").set("guard.interval", "0");
  job.set("checkpoint.save_interval", "0").expect(0);
  std::vector<long> waits;
  for (int rank = 0; rank < ranks; ++rank) {
    long n = -1;
    std::ifstream(file + "." + std::to_string(rank)) >> n;
    waits.push_back(n);
  }
  return waits;
}

// The verdict, and nothing else (docs/architecture.md section 8, "One verdict a step").
TEST(Remote, TheHostWaitsOnceAStep) {
  for (const Change& change : {both(zero(3, 2), pipeline("1f1b")), zero(2, 2)}) {
    const std::vector<long> few = waits_of(2, change, 2), many = waits_of(5, change, 2);
    for (std::size_t rank = 0; rank < few.size(); ++rank) {
      ASSERT_GT(few[rank], 0);
      EXPECT_EQ(many[rank] - few[rank], 3) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace espalier::testing_support
