// Twenty steps of each way to use several fake GPUs.
#include "emulated_jobs.hpp"

namespace espalier::testing_support {
namespace {

TEST(EmulatedRanksLong, Data) { expect_like_the_cpu("cuda_data", zero(0), 1e-5); }
TEST(EmulatedRanksLong, Zero2) { expect_like_the_cpu("cuda_zero2", zero(2), 1e-5); }
TEST(EmulatedRanksLong, Zero3) { expect_like_the_cpu("cuda_zero3", zero(3), 1e-5); }
TEST(EmulatedRanksLong, Tensor) { expect_like_the_cpu("cuda_tensor", split("tensor", zero(1)), 1e-5); }
TEST(EmulatedRanksLong, Pipeline) { expect_like_the_cpu("cuda_pipeline", split("pipeline", zero(1)), 1e-5); }
TEST(EmulatedRanksLong, TensorAndPipelineAndZero2InBf16) {
  expect_like_the_cpu("cuda_all", with_optimizer("optim_bf16", split("tensor", split("pipeline", zero(2, 4)))), 5e-3);
}

}  // namespace
}  // namespace espalier::testing_support
