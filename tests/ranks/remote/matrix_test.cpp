// The remote device under every strategy: many orders, all equal to the reference backend to the bit.
#include "remote_jobs.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kOrders = 4;

Change optimizer(const std::string& name) { return key("optimizer.plugin", "\"" + name + "\""); }

TEST(RemoteMatrix, ZeroStages) {
  for (int stage = 0; stage <= 3; ++stage) {
    expect_remote_equal("remote_stage_" + std::to_string(stage), kOrders, both(zero(stage), optimizer("optim_bf16")),
                        run_with_resume);
  }
}

TEST(RemoteMatrix, ZeroStagesOnFourRanks) {
  for (int stage = 1; stage <= 3; ++stage) {
    expect_remote_equal("remote_four_" + std::to_string(stage), 2,
                        both(both(zero(stage, 4), tensor(2)), optimizer("optim_fp16")), run_through);
  }
}

TEST(RemoteMatrix, Tensor) {
  for (const bool sequence : {false, true}) {
    expect_remote_equal(sequence ? "remote_sequence" : "remote_tensor", kOrders, both(zero(1, 2), tensor(2, sequence)),
                        run_with_resume);
  }
}

TEST(RemoteMatrix, Schedules) {
  for (const std::string schedule : {"gpipe", "1f1b", "zero_bubble"}) {
    for (const int stage : {1, 3}) {
      expect_remote_equal("remote_" + schedule + std::to_string(stage), kOrders,
                          both(zero(stage, 2), pipeline(schedule)), run_with_resume);
    }
  }
}

TEST(RemoteMatrix, ChunksAndCheckedCollectives) {
  const Change chunks = both(key("model.layers", "6"),
                             both(key("parallel.pipeline.chunks", "2"), key("debug.check_collectives", "true")));
  expect_remote_equal("remote_chunks", 3, both(both(zero(3, 2), pipeline("interleaved")), chunks), run_through);
}

TEST(RemoteMatrix, EverythingAtOnce) {
  const Change layout = both(both(zero(2, 4), tensor(2, true)), pipeline("1f1b"));
  expect_remote_equal("remote_all", 3, both(layout, both(optimizer("optim_bf16"), key("train.recompute", "\"full\""))),
                      run_with_resume);
}

TEST(RemoteMatrix, Recomputation) {
  for (const std::string recompute : {"none", "selective", "full"}) {
    expect_remote_equal("remote_recompute_" + recompute, kOrders, key("train.recompute", "\"" + recompute + "\""),
                        run_through);
  }
}

TEST(RemoteMatrix, LearnedPositionsAndUntiedHead) {
  expect_remote_equal(
      "remote_learned", kOrders,
      both(both(zero(2, 2), tensor(2)), both(key("model.position", "\"learned\""), key("model.tied_head", "false"))),
      run_through);
}

TEST(RemoteMatrix, OptimizerOfWholeMatrices) {
  for (const int stage : {0, 1, 2}) {
    expect_remote_equal("remote_matrices_" + std::to_string(stage), 3,
                        both(zero(stage), both(optimizer("doubles"), key("train.lr", "0.1"))), run_with_resume);
  }
}

TEST(RemoteMatrix, LocalSgd) {
  const Change local = [](TrainerJob& job) {
    job.set("optimizer.plugin", "\"doubles\"")
        .set("optimizer.matrices", "false")
        .set("train.clip_grad", "0.0")
        .set("train.lr", "0.1")
        .set("parallel.data.plugin", "\"doubles\"")
        .set("parallel.data.interval", "2");
    job.world(2);
  };
  expect_remote_equal("remote_local", kOrders, local, run_through);
}

TEST(RemoteMatrix, TensorAndPipelineDoubles) {
  const Change doubles = [](TrainerJob& job) {
    job.set("parallel.tensor.plugin", "\"doubles\"").set("parallel.tensor.size", "2");
    job.set("parallel.pipeline.plugin", "\"doubles\"").set("parallel.pipeline.size", "2");
    job.set("model.tied_head", "false");
  };
  expect_remote_equal("remote_doubles", 3, both(zero(1, 4), doubles), run_through);
}

}  // namespace
}  // namespace espalier::testing_support
