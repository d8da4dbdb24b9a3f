// 20 steps with CUDA graphs, one rank.
#include "cuda_emulation/runs/graphs.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 20;
constexpr int kMicroBatches = 150;  ///< pieces of work in those of a step, at least
constexpr int kEvaluations = 100;   ///< in those of evaluations, at most

TEST(EmulatedCudaGraphRuns, Bf16) {
  expect_same_with_graphs("cuda_graphs_bf16", kSteps, 3, kMicroBatches, optimizer("optim_bf16"));
}

TEST(EmulatedCudaGraphRuns, Fp16WithAChangingLossScale) {
  expect_same_with_graphs(
      "cuda_graphs_fp16", kSteps, 1, kMicroBatches,
      both(optimizer("optim_fp16"), key("optimizer.initial_scale_power", "24")));  // overflows at first
}

TEST(EmulatedCudaGraphRuns, RecomputationAndEvaluationBetweenSteps) {
  expect_same_with_graphs("cuda_graphs_eval", kSteps, 1, kMicroBatches,
                          both(key("train.recompute", "\"full\""), key("eval.interval", "3")));
}

/// Every micro-batch has other samples, so its numbers of dropout are others: only evaluations repeat.
TEST(EmulatedCudaGraphRuns, Dropout) {
  expect_same_with_graphs("cuda_graphs_dropout", kSteps, 1, -kEvaluations,
                          both(both(key("model.attention_dropout", "0.1"), key("model.hidden_dropout", "0.1")),
                               both(key("train.recompute", "\"full\""), key("eval.interval", "5"))));
}

TEST(EmulatedCudaGraphRuns, ResumesToTheBit) {
  constexpr int kTen = 10;
  const Change change = both(key("checkpoint.save_interval", "5"), key("backend.graphs", "true"));
  TrainerJob whole = quickstart_job("cuda_graphs_whole", kTen, change);
  EXPECT_GE(said_of_graphs(on_cuda(whole, 0).expect(0, 300).output).pieces, kMicroBatches);
  TrainerJob parts = quickstart_job("cuda_graphs_parts", kTen, change);
  on_cuda(parts, 1).set("train.exit_interval", "5").expect(75, 300);
  parts.set("train.exit_interval", "0").expect(0, 300);
  EXPECT_EQ(difference_of_steps(whole.steps(), parts.steps(), 1, kTen), "");
  EXPECT_EQ(difference_of_checkpoints(whole.checkpoint(kTen), parts.checkpoint(kTen)), "");
}

}  // namespace
}  // namespace espalier::testing_support
