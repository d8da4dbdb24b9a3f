// 20 steps with CUDA graphs, one rank.
#include "graphs.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 20;

TEST(EmulatedCudaGraphRuns, Bf16) { expect_same_with_graphs("cuda_graphs_bf16", kSteps, 3, optimizer("optim_bf16")); }

TEST(EmulatedCudaGraphRuns, Fp16WithAChangingLossScale) {
  expect_same_with_graphs("cuda_graphs_fp16", kSteps, 1, [](TrainerJob& job) {
    job.set("optimizer.plugin", "\"optim_fp16\"").set("optimizer.initial_scale_power", "24");  // overflows at first
  });
}

/// Every micro-batch has other samples, so its numbers of dropout are others: what holds them never repeats.
TEST(EmulatedCudaGraphRuns, DropoutRecomputationEvaluation) {
  expect_same_with_graphs(
      "cuda_graphs_dropout", kSteps, 1,
      [](TrainerJob& job) {
        job.set("model.attention_dropout", "0.1")
            .set("model.hidden_dropout", "0.1")
            .set("train.recompute", "\"full\"")
            .set("eval.interval", "5")
            .set("eval.samples", "3");
      },
      false);
}

TEST(EmulatedCudaGraphRuns, EvaluationBetweenSteps) {
  expect_same_with_graphs("cuda_graphs_eval", kSteps, 1, [](TrainerJob& job) {
    job.set("train.recompute", "\"full\"").set("eval.interval", "3").set("eval.samples", "3");
  });
}

TEST(EmulatedCudaGraphRuns, ResumesToTheBit) {
  const Change change = [](TrainerJob& job) {
    job.set("optimizer.plugin", "\"optim_bf16\"").set("checkpoint.save_interval", "5").set("backend.graphs", "true");
  };
  TrainerJob whole = quickstart_job("cuda_graphs_whole", 10, change);
  EXPECT_NE(said_of_graphs(on_cuda(whole, 0).expect(0, 300).output), "");
  TrainerJob parts = quickstart_job("cuda_graphs_parts", 10, change);
  on_cuda(parts, 1).set("train.exit_interval", "5").expect(75, 300);
  parts.set("train.exit_interval", "0").expect(0, 300);
  EXPECT_EQ(difference_of_steps(whole.steps(), parts.steps(), 1, 10), "");
  EXPECT_EQ(difference_of_checkpoints(whole.checkpoint(10), parts.checkpoint(10)), "");
}

}  // namespace
}  // namespace espalier::testing_support
