// Algorithms of products: chosen before the first step by one rank of a tensor group for all of it.
#include <gmock/gmock.h>

#include <cstdlib>

#include "emulated_steps.hpp"

namespace espalier::testing_support {
namespace {

void set(const char* variable, int value) {
  ::setenv(("ESPALIER_FAKE_CUDA_" + std::string(variable)).c_str(), std::to_string(value).c_str(), 1);
}

struct Steps {
  std::vector<double> losses, norms;
  bool operator==(const Steps&) const = default;
};

/// Two steps. Before the first one the heuristic of the fake cuBLASLt favours `algorithm` on this rank; from then on it
/// knows nothing new but attention's products.
Steps steps_of(RunOptions options, int algorithm, int refused = 0) {
  set("ALGORITHM", algorithm);
  set("REFUSED_ALGORITHM", refused);
  set("ONLY_BATCHED", 0);
  const auto world = make_world_communicator();
  options.micro_batches = 2;
  PipelineRun run(*world, on_fake_gpus(std::move(options)));
  set("ALGORITHM", 0);
  set("ONLY_BATCHED", 1);
  Steps steps;
  for (int step = 0; step < 2; ++step) {
    const Verdict verdict = run.step();
    steps.losses.push_back(verdict.loss_sum);
    steps.norms.push_back(verdict.norm);
  }
  return steps;
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
      if (world_size() > 1 && recompute != std::string("full")) continue;
      steps_of(with({std::string("optimizer.plugin=") + optimizer, std::string("train.recompute=") + recompute}), 0);
    }
  }
}

TEST(EmulatedPlans, TheFirstRankChooses) {
  if (world_size() != 2) GTEST_SKIP() << "two ranks";
  const RunOptions options = with({"parallel.tensor.sequence_parallel=true"});
  const Steps zero = steps_of(options, 0), one = steps_of(options, 1);
  EXPECT_NE(zero, one);
  EXPECT_EQ(steps_of(options, world_rank() == 0 ? 1 : 0), one);
  EXPECT_EQ(steps_of(options, world_rank() == 0 ? 0 : 2), zero);
}

TEST(EmulatedPlans, AnAlgorithmThatDoesNotRunHereIsNotTaken) {
  if (world_size() != 2) GTEST_SKIP() << "two ranks";
  const RunOptions options = with({});
  const int own = world_rank() == 0 ? 1 : 2;
  const Steps taken = steps_of(options, own), refused = steps_of(options, own, world_rank() == 0 ? 0 : 2);
  EXPECT_NE(taken, refused);
}

TEST(EmulatedPlans, TimedOnesAreTheFastest) {
  const RunOptions heuristic = with({}), timed = with({"backend.plans=timed"});
  const Steps fastest = steps_of(heuristic, 1);
  EXPECT_EQ(steps_of(timed, 0), fastest);
  EXPECT_EQ(steps_of(timed, world_rank() == 0 ? 2 : 0), fastest);
}

}  // namespace
}  // namespace espalier::testing_support
