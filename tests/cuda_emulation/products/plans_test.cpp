// Algorithms of products: chosen before the first step by one rank of a tensor group for all of it.
#include <gmock/gmock.h>

#include <cstdlib>

#include "emulated_steps.hpp"

namespace espalier::testing_support {
namespace {

void set(const char* variable, int value) {
  ::setenv(("ESPALIER_FAKE_CUDA_" + std::string(variable)).c_str(), std::to_string(value).c_str(), 1);
}

struct Step {
  double loss = 0, norm = 0;
  bool operator==(const Step&) const = default;
};

/// One step. Before it the heuristic of the fake cuBLASLt favours `algorithm` on this rank; from then on it knows
/// nothing new but attention's products.
Step step_with(RunOptions options, int algorithm, int refused = 0) {
  set("ALGORITHM", algorithm);
  set("REFUSED_ALGORITHM", refused);
  set("ONLY_BATCHED", 0);
  const auto world = make_world_communicator();
  options.micro_batches = world_size() == 1 ? 2 : 1;
  PipelineRun run(*world, on_fake_gpus(std::move(options)));
  set("ALGORITHM", 0);
  set("ONLY_BATCHED", 1);
  const Verdict verdict = run.step();
  return {verdict.loss_sum, verdict.norm};
}

RunOptions with(std::vector<std::string> more) {
  RunOptions options;
  options.tensor = world_size();
  options.more = std::move(more);
  return options;
}

/// The orders of sums show which algorithm ran.
TEST(EmulatedPlans, EveryProductOfAStepIsAnnounced) {
  const char* const kOptimizers[] = {"optim_fp32", "optim_bf16", "optim_fp16"};
  for (const char* optimizer : kOptimizers) {
    for (const char* recompute : {"none", "selective", "full"}) {
      if (world_size() > 1 && (recompute != std::string("full") || optimizer != std::string("optim_bf16"))) continue;
      step_with(with({std::string("optimizer.plugin=") + optimizer, std::string("train.recompute=") + recompute}), 0);
    }
  }
}

TEST(EmulatedPlans, TheFirstRankChooses) {
  if (world_size() != 2) GTEST_SKIP() << "two ranks";
  const RunOptions options = with({"parallel.tensor.sequence_parallel=true"});
  const Step zero = step_with(options, 0), one = step_with(options, 1);
  EXPECT_NE(zero, one);
  EXPECT_EQ(step_with(options, world_rank() == 0 ? 1 : 0), one);
}

TEST(EmulatedPlans, AnAlgorithmThatDoesNotRunHereIsNotTaken) {
  if (world_size() != 2) GTEST_SKIP() << "two ranks";
  const RunOptions options = with({});
  const int own = world_rank() == 0 ? 1 : 2;
  const Step taken = step_with(options, own), refused = step_with(options, own, world_rank() == 0 ? 0 : 2);
  EXPECT_NE(taken, refused);
}

TEST(EmulatedPlans, TimedOnesAreTheFastest) {
  const RunOptions heuristic = with({}), timed = with({"backend.plans=timed"});
  const Step fastest = step_with(heuristic, 1);
  EXPECT_EQ(step_with(timed, 0), fastest);
  EXPECT_EQ(step_with(timed, world_rank() == 0 ? 2 : 0), fastest);
}

}  // namespace
}  // namespace espalier::testing_support
