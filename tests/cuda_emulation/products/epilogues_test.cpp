// Steps whose products also compute GELU, its gradient and bias gradients are those of separate kernels, in every way a
// step is cut: recomputation, tensor ranks, backward in halves.
#include <cmath>
#include <cstdlib>

#include "emulated_steps.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 3;
constexpr double kFp32 = 1e-5;  // FP32 sums in another order
constexpr double kHalf = 5e-3;  // what GELU starts from is rounded with its bias, not before it

RunResult run(const RunOptions& options, const char* epilogues, const char* in_library = "1") {
  ::setenv("ESPALIER_FAKE_CUDA_EPILOGUES", in_library, 1);
  const auto world = make_world_communicator();
  RunOptions there = on_fake_gpus(options);
  there.micro_batches = 2;
  there.more.push_back(std::string("backend.epilogues=") + epilogues);
  return run_steps(*world, there, kSteps);
}

void expect_near(const RunResult& a, const RunResult& b, double relative, const std::string& what) {
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], relative * a.losses[i]) << what << ", step " << i + 1;
    EXPECT_NEAR(a.norms[i], b.norms[i], 2 * relative * a.norms[i]) << what << ", step " << i + 1;
  }
}

void expect_like_kernels(const RunOptions& options, double relative, const std::string& what) {
  const RunResult kernels = run(options, "false"), fused = run(options, "true");
  expect_near(kernels, fused, relative, what);
  if (world_rank() == 0) {
    EXPECT_NE(kernels.masters, fused.masters) << what << ": nothing was done in another way";
  }
}

RunOptions with(std::vector<std::string> more) {
  RunOptions options;
  options.more = std::move(more);
  return options;
}

TEST(EmulatedEpilogues, OneRank) {
  if (world_size() != 1) GTEST_SKIP() << "one rank";
  expect_like_kernels(with({}), kFp32, "FP32");
  expect_like_kernels(with({"train.recompute=full"}), kFp32, "recomputed");
  expect_like_kernels(with({"train.recompute=selective", "optimizer.plugin=optim_fp16"}), kHalf, "FP16, selective");
  expect_like_kernels(with({"optimizer.plugin=optim_bf16"}), kHalf, "BF16");
}

TEST(EmulatedEpilogues, WithoutThemInTheLibraryKernelsRun) {
  if (world_size() != 1) GTEST_SKIP() << "one rank";
  const RunResult kernels = run(with({}), "false"), refused = run(with({}), "true", "0");
  EXPECT_EQ(kernels.losses, refused.losses);
  EXPECT_EQ(kernels.norms, refused.norms);
  EXPECT_EQ(kernels.masters, refused.masters);
}

TEST(EmulatedEpilogues, TwoRanks) {
  if (world_size() != 2) GTEST_SKIP() << "two ranks";
  RunOptions tensor = with({"parallel.tensor.sequence_parallel=true", "train.recompute=selective"});
  tensor.tensor = 2;
  expect_like_kernels(tensor, kFp32, "tensor");
  RunOptions pipeline = with({"optimizer.plugin=optim_bf16"});
  pipeline.pipeline = 2;
  pipeline.schedule = "zero_bubble";
  expect_like_kernels(pipeline, kHalf, "zero bubble");
}

}  // namespace
}  // namespace espalier::testing_support
