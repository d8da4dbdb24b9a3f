// A few steps of each way to use two fake GPUs.
#include "cuda_emulation/runs/runs.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 3;
constexpr int kOrders = 2;

TEST(EmulatedRanks, FewStepsOfTheQuickstart) {
  expect_cuda_as_cpu("cuda_ranks_shipped", kSteps, kOrders, kHalf, zero(1));
}
TEST(EmulatedRanks, FewStepsOfTensor) {
  expect_cuda_as_cpu("cuda_ranks_tensor", kSteps, kOrders, kFp32,
                     both(zero(2), both(split("tensor"), optimizer("optim_fp32"))));
}
TEST(EmulatedRanks, FewStepsOfPipeline) {
  expect_cuda_as_cpu("cuda_ranks_pipeline", kSteps, kOrders, kFp32,
                     both(zero(1), both(split("pipeline"), optimizer("optim_fp32"))));
}
TEST(EmulatedRanks, FewStepsOfZero2) {
  expect_cuda_as_cpu("cuda_ranks_zero", kSteps, kOrders, kFp32, both(zero(2), optimizer("optim_fp32")));
}

}  // namespace
}  // namespace espalier::testing_support
