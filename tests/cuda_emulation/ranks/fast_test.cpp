// A few steps of each way to use several fake GPUs.
#include "emulated_jobs.hpp"

namespace espalier::testing_support {
namespace {

TEST(EmulatedRanks, FewStepsOfTensorPipelineAndZero2) {
  expect_like_the_cpu("cuda_ranks_tensor", split("tensor", zero(2)), 1e-5, 2, 2);
  expect_like_the_cpu("cuda_ranks_pipeline", split("pipeline", zero(1)), 1e-5, 2, 2);
  expect_like_the_cpu("cuda_ranks_zero", zero(2), 1e-5, 2, 2);
}

}  // namespace
}  // namespace espalier::testing_support
