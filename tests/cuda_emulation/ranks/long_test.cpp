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

/// K02: the second rank has the slopes of heads 7 to 12, not those of the first six.
TEST(EmulatedRanksLong, HeadsOfTheSecondRankHaveTheirOwnSlopes) {
  const Change twelve = [](TrainerJob& job) { job.set("model.heads", "12").set("model.hidden", "24"); };
  constexpr int kSteps = 2;
  TrainerJob whole = job_of("cuda_ranks_heads_cpu", twelve, kSteps);
  whole.expect(0, 120);
  TrainerJob halves = emulated(
      "cuda_ranks_heads",
      [&](TrainerJob& job) {
        twelve(job);
        split("tensor", zero(1))(job);
        job.environment("ESPALIER_CUDA_EMULATION=races=off");
      },
      kSteps, 0);
  halves.expect(0, 240);
  const auto a = whole.steps(), b = halves.steps();
  ASSERT_EQ(a.size(), static_cast<std::size_t>(kSteps));
  ASSERT_EQ(b.size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double loss = number(a[i], "lm loss"), norm = number(a[i], "grad norm");
    EXPECT_NEAR(number(b[i], "lm loss"), loss, 1e-6 * loss) << "step " << i + 1;
    EXPECT_NEAR(number(b[i], "grad norm"), norm, 1e-5 * norm) << "step " << i + 1;
  }
}

}  // namespace
}  // namespace espalier::testing_support
