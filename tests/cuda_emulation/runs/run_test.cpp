// 20 steps on one rank, three orders each.
#include "runs.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 20;
constexpr int kOrders = 3;

TEST(EmulatedCudaRuns, Fp32) { expect_cuda_as_cpu("cuda_fp32", kSteps, kOrders, kFp32, optimizer("optim_fp32")); }

TEST(EmulatedCudaRuns, Bf16AsShipped) {
  expect_cuda_as_cpu("cuda_bf16", kSteps, kOrders, kHalf, [](TrainerJob&) {});
}

TEST(EmulatedCudaRuns, Fp16SkipsTheSameSteps) {
  expect_cuda_as_cpu("cuda_fp16", kSteps, kOrders, kHalf,
                     both(optimizer("optim_fp16"), key("optimizer.initial_scale_power", "24")));  // overflows at first
}

TEST(EmulatedCudaRuns, LionFromOutside) { expect_cuda_as_cpu("cuda_lion", kSteps, kOrders, kHalf, lion); }

TEST(EmulatedCudaRuns, DropoutRecomputationEvaluation) {
  expect_cuda_as_cpu("cuda_dropout", kSteps, kOrders, kFp32, [](TrainerJob& job) {
    job.set("optimizer.plugin", "\"optim_fp32\"")
        .set("model.attention_dropout", "0.1")
        .set("model.hidden_dropout", "0.1")
        .set("train.recompute", "\"full\"")
        .set("eval.interval", "10");
  });
}

TEST(EmulatedCudaRuns, ResumesToTheBit) {
  const Change change = [](TrainerJob& job) {
    job.set("optimizer.plugin", "\"optim_bf16\"").set("checkpoint.save_interval", "3");
  };
  TrainerJob whole = quickstart_job("cuda_whole", 6, change);
  on_cuda(whole, 0).expect(0, 300);
  TrainerJob parts = quickstart_job("cuda_parts", 6, change);
  on_cuda(parts, 1).set("train.exit_interval", "3").expect(75, 300);
  parts.set("train.exit_interval", "0").expect(0, 300);
  EXPECT_EQ(difference_of_steps(whole.steps(), parts.steps(), 1, 6), "");
  EXPECT_EQ(difference_of_checkpoints(whole.checkpoint(6), parts.checkpoint(6)), "");
}

}  // namespace
}  // namespace espalier::testing_support
