// Twenty steps of each way to use several fake GPUs, and of each optimizer on two; three orders each.
#include "cuda_emulation/runs/runs.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 20;
constexpr int kOrders = 3;

void expect_ranks(const std::string& name, double tolerance, const Change& change) {
  expect_cuda_as_cpu(name, kSteps, kOrders, tolerance, change);
}

const Change fp32 = optimizer("optim_fp32");

// Layouts, in FP32: nothing hides in the rounding of 16 bits.
TEST(EmulatedRanksLong, Data) { expect_ranks("cuda_data", kFp32, both(zero(0), fp32)); }
TEST(EmulatedRanksLong, Zero1) { expect_ranks("cuda_zero1", kFp32, both(zero(1), fp32)); }
TEST(EmulatedRanksLong, Zero2) { expect_ranks("cuda_zero2", kFp32, both(zero(2), fp32)); }
TEST(EmulatedRanksLong, Zero3) { expect_ranks("cuda_zero3", kFp32, both(zero(3), fp32)); }
TEST(EmulatedRanksLong, Tensor) { expect_ranks("cuda_tensor", kFp32, both(zero(1), both(split("tensor"), fp32))); }
TEST(EmulatedRanksLong, SequenceParallel) {
  expect_ranks("cuda_sequence", kFp32,
               both(zero(1), both(split("tensor"), both(key("parallel.tensor.sequence_parallel", "true"), fp32))));
}
TEST(EmulatedRanksLong, Pipeline) {
  expect_ranks("cuda_pipeline", kFp32, both(zero(1), both(split("pipeline"), fp32)));
}

// The recipe as it is shipped, for two ranks, and the layouts in its precision.
TEST(EmulatedRanksLong, AsShipped) { expect_ranks("cuda_shipped", kHalf, zero(1)); }
TEST(EmulatedRanksLong, TensorInBf16) { expect_ranks("cuda_tensor_bf16", kHalf, both(zero(1), split("tensor"))); }
TEST(EmulatedRanksLong, PipelineInBf16) { expect_ranks("cuda_pipeline_bf16", kHalf, both(zero(1), split("pipeline"))); }
TEST(EmulatedRanksLong, TensorAndPipelineAndZero2InBf16) {
  expect_ranks("cuda_all", kHalf, both(zero(2, 4), both(split("tensor"), split("pipeline"))));
}
TEST(EmulatedRanksLong, TensorAndZero2OfTwoReplicas) {
  expect_ranks("cuda_tensor_zero2", kHalf, both(zero(2, 4), split("tensor")));
}

// The optimizers, on ZeRO 2.
TEST(EmulatedRanksLong, Bf16OnZero2) { expect_ranks("cuda_zero2_bf16", kHalf, zero(2)); }
TEST(EmulatedRanksLong, Fp16OnZero2SkipsTheSameSteps) {
  expect_ranks("cuda_zero2_fp16", kHalf,
               both(zero(2), both(optimizer("optim_fp16"), key("optimizer.initial_scale_power", "24"))));
}
TEST(EmulatedRanksLong, LionFromOutsideOnZero2) { expect_ranks("cuda_zero2_lion", kHalf, both(zero(2), lion)); }
TEST(EmulatedRanksLong, LionFromOutsideOnTensor) {
  expect_ranks("cuda_tensor_lion", kHalf, both(zero(1), both(split("tensor"), lion)));
}

/// K02: the second rank has the slopes of heads 7 to 12, not those of the first six.
TEST(EmulatedRanksLong, K02HeadsOfTheSecondRankHaveTheirOwnSlopes) {
  const Change sharp = both(fp32, key("train.lr", "1e-4"));
  TrainerJob whole = quickstart_job("cuda_ranks_heads_whole", 2, sharp);
  whole.expect(0, 120);
  TrainerJob halves = quickstart_job("cuda_ranks_heads", 2, both(zero(1), both(split("tensor"), sharp)));
  on_cuda(halves, 0).expect(0, 240);
  expect_near(whole, halves, kFp32, "heads");
}

}  // namespace
}  // namespace espalier::testing_support
