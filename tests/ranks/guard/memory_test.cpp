// Measured bytes of a rank are the computed ones: 2 of weights, 4 of gradients and 12 of optimizer state a parameter,
// each divided by the data group where the ZeRO stage shards it (arXiv:1910.02054, with FP32 gradients).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks/guard/guarded_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier::testing_support {
namespace {

class Memory : public testing::Test {
 protected:
  GuardedRun run_of(const std::string& name) {
    GuardedRun run(*world_, name);
    // Sizes of which shards need no padding: all are multiples of 64 elements a rank.
    run.set("model.hidden", "128").set("model.vocab_size", "384").set("train.train_iters", "2");
    run.after_step(1, [this](app::Session& session) {
      parameters_ = static_cast<std::size_t>(session.parameters().count());
      for (const MemoryUse& use : session.backend().device().memory_use()) peak_[use.purpose] = use.peak;
    });
    return run;
  }

  const std::unique_ptr<Communicator> world_ = make_world_communicator();
  std::size_t parameters_ = 0;
  std::map<std::string, std::size_t> peak_;
};

class MemoryOfStage : public Memory, public testing::WithParamInterface<int> {};

TEST_P(MemoryOfStage, IsTwoFourTwelveAParameter) {
  const int stage = GetParam();
  const auto ranks = static_cast<std::size_t>(world_->size());
  const GuardedEnd end =
      run_of("memory_" + std::to_string(stage)).set("parallel.data.stage", std::to_string(stage)).run();
  ASSERT_EQ(end.error, "");
  EXPECT_EQ(peak_["weights"], 2 * parameters_ / (stage >= 3 ? ranks : 1));
  EXPECT_EQ(peak_["gradients"], 4 * parameters_ / (stage >= 2 ? ranks : 1));
  EXPECT_EQ(peak_["optimizer"], 12 * parameters_ / (stage >= 1 ? ranks : 1));
  if (stage < 2) {
    EXPECT_EQ(peak_["scratch"], 0u) << "messages are as wide as the sums";
  }
  if (world_->rank() == 0) {
    EXPECT_THAT(end.events_of("memory"), testing::HasSubstr("ranks 0, 1: weights"));
    EXPECT_THAT(end.events_of("memory"), testing::HasSubstr("each as computed"));
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, MemoryOfStage, testing::Values(0, 1, 2, 3));

// Ranks that hold other parts of the model have lines of their own, and one says who has the most.
TEST_F(Memory, IsSaidForEachKindOfRank) {
  GuardedRun run = run_of("memory_stages");
  run.set("parallel.pipeline.plugin", "\"parallel_pipeline\"")
      .set("parallel.pipeline.size", "2")
      .set("model.layers", "3");
  const GuardedEnd end = run.run();
  ASSERT_EQ(end.error, "");
  if (world_->rank() == 0) {
    const std::string text = end.events_of("memory");
    EXPECT_THAT(text, testing::ContainsRegex("memory: rank 0: .*each as computed\n"));
    EXPECT_THAT(text, testing::ContainsRegex("memory: rank 1: .*each as computed\n"));
    EXPECT_THAT(text, testing::ContainsRegex("the most is [0-9.]+ MiB on rank [01]\n"));
  }
}

TEST_F(Memory, OfATensorGroupWithSequenceParallelism) {
  GuardedRun run = run_of("memory_tensor");
  run.set("parallel.tensor.plugin", "\"parallel_tensor\"").set("parallel.tensor.size", "2");
  run.set("parallel.tensor.sequence_parallel", "true").set("train.recompute", "\"full\"");
  const GuardedEnd end = run.run();
  ASSERT_EQ(end.error, "");
  if (world_->rank() == 0) {
    EXPECT_THAT(end.events_of("memory"), testing::HasSubstr("each as computed"));
  }
}

}  // namespace
}  // namespace espalier::testing_support
