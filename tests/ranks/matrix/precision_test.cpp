// Case P13: every combination of precision, type of the reduction's messages, ZeRO stage and pipeline trains, or is
// refused at the start with what is allowed. The README has the table.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "support/hashed_batches.hpp"
#include "support/mpi_test.hpp"
#include "support/session_rig.hpp"

namespace espalier::testing_support {
namespace {

constexpr const char* kOptimizers[] = {"optim_bf16", "optim_fp16", "optim_fp32"};
constexpr const char* kReduceTypes[] = {"auto", "f32", "bf16"};
constexpr int kData = 2, kSteps = 3;

struct Combination {
  const char* optimizer;
  const char* reduce;
  int zero, pipeline;
  bool once = false;  ///< reduce = "step"
  std::string name() const {
    return std::string(optimizer) + ", reduce_dtype " + reduce + ", stage " + std::to_string(zero) +
           (once ? " once a step" : "") + ", pipeline " + std::to_string(pipeline);
  }
  /// Only stage 2 has that choice.
  bool refused() const { return once && zero != 2; }
};

/// Mean loss of each step.
std::vector<double> train(Communicator& world, const Combination& at) {
  RigOptions options;
  options.pipeline = at.pipeline;
  options.micro_batches = 2;
  options.tokenizer_vocab = 59;
  options.set = {std::string("optimizer.plugin=") + at.optimizer,
                 std::string("parallel.data.reduce_dtype=") + at.reduce,
                 "parallel.data.stage=" + std::to_string(at.zero)};
  if (at.once) options.set.push_back("parallel.data.reduce=step");
  if (std::string_view(at.optimizer) == "optim_fp16") options.set.push_back("optimizer.initial_scale_power=8");
  SessionRig rig(world, options);
  Optimizer& optimizer = rig.session().optimizer();
  const app::Walk walk = rig.train_walk();
  rig.bind(std::span(&walk, 1), optimizer, 0.06);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    // The same batch, so that three steps show in its loss.
    HashedBatches batches(rig.facts().model, 1, 2 * kData, kData, rig.facts().grid.data_rank, 0);
    const Verdict verdict = rig.executor().train_step(walk, batches, {5e-3, 1.0, step + 1}, optimizer);
    EXPECT_TRUE(verdict.finite) << at.name() << ": step " << step + 1;
    losses.push_back(verdict.loss_sum / static_cast<double>(verdict.tokens));
  }
  return losses;
}

TEST(Precision, EveryCombinationTrainsOrIsRefused) {
  ESPALIER_REQUIRE_RANKS(2 * kData);
  const auto world = make_world_communicator();
  std::vector<Combination> list;
  std::vector<int> ranks;
  for (const char* optimizer : kOptimizers) {
    for (const char* reduce : kReduceTypes) {
      for (const int zero : {0, 1, 2, 3}) {
        for (const int pipeline : {1, 2}) {
          for (const bool once : {false, true}) {
            list.push_back({optimizer, reduce, zero, pipeline, once});
            ranks.push_back(kData * pipeline);
          }
        }
      }
    }
  }
  // Of FP32 messages and weights: what all others are near to.
  std::vector<double> truth;
  {
    const auto pair = world->split(world->rank() / kData, world->rank(), "world");
    truth = train(*pair, {"optim_fp32", "f32", 0, 1, false});
  }
  EXPECT_LT(truth.back(), truth.front() - 0.05);
  run_packed(*world, ranks, [&](Communicator& group, std::size_t i) {
    try {
      const std::vector<double> losses = train(group, list[i]);
      EXPECT_FALSE(list[i].refused()) << list[i].name();
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(losses[static_cast<std::size_t>(step)], truth[static_cast<std::size_t>(step)], 0.01)
            << list[i].name() << ": loss of step " << step + 1;
      }
    } catch (const ConfigError& error) {
      EXPECT_TRUE(list[i].refused()) << list[i].name() << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find("stage 2"), std::string::npos) << "what is allowed: " << error.what();
    }
  });
}

}  // namespace
}  // namespace espalier::testing_support
