// parallel_zero under the model itself: recomputation, schedules with split backward, evaluation between steps, 16-bit
// optimizers.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/hashed_batches.hpp"
#include "support/mpi_test.hpp"
#include "support/session_rig.hpp"

namespace espalier::testing_support {
namespace {

using namespace app;

struct Layout {
  int pipeline = 1;
  int tensor = 1;
  int micro_batches = 3;
  int stage = 1;
  std::vector<std::string> more;
};

struct Result {
  std::vector<double> losses, norms;  ///< of training steps, each followed by an evaluation
  std::map<std::string, std::vector<float>> masters;
  bool operator==(const Result&) const = default;
};

class ZeroModel : public testing::Test {
 protected:
  static RigOptions options_of(const Layout& layout) {
    RigOptions options;
    options.tensor = layout.tensor;
    options.pipeline = layout.pipeline;
    options.micro_batches = layout.micro_batches;
    options.set = {"model.layers=6", "model.hidden=24", "model.ffn=48", "model.hidden_dropout=0.1",
                   "parallel.data.stage=" + std::to_string(layout.stage)};
    options.set.insert(options.set.end(), layout.more.begin(), layout.more.end());
    return options;
  }

  Result run(const Layout& layout) {
    SessionRig rig(*world_, options_of(layout));
    Optimizer& optimizer = rig.session().optimizer();
    const Walk walks[] = {rig.train_walk(), rig.eval_walk()};
    rig.bind(walks, optimizer, 0.06);
    const Grid& grid = rig.facts().grid;
    Result result;
    for (int step = 0; step < 3; ++step) {
      HashedBatches batches(rig.facts().model, 1, std::int64_t{layout.micro_batches} * grid.data, grid.data,
                            grid.data_rank, step);
      const Verdict verdict = rig.executor().train_step(walks[0], batches, {1e-2, 1.0, step + 1}, optimizer);
      const EvalResult valid = rig.executor().evaluate(walks[1], batches);
      EXPECT_TRUE(verdict.finite);
      result.losses.insert(result.losses.end(), {verdict.loss_sum, valid.loss_sum});
      result.norms.push_back(verdict.norm);
      EXPECT_LT(valid.loss_sum, verdict.loss_sum) << "the same samples after a step on them";
    }
    result.masters = rig.gather("master");
    return result;
  }

  std::unique_ptr<Communicator> world_ = make_world_communicator();
};

TEST_F(ZeroModel, RecomputationAndStages2And3ToTheBit) {
  if (world_->size() == 4) return;
  const Result expected = run({1, 1, 3, 2, {}});
  for (const char* recompute : {"none", "selective", "full"}) {
    for (const char* keep : {"0", "1"}) {  // then fewer slots than blocks, most of them for layers to come
      const Result found =
          run({1,
               1,
               3,
               3,
               {std::string("train.recompute=") + recompute, std::string("parallel.data.keep_gathered=") + keep,
                std::string("parallel.data.prefetch=") + (keep[0] == '0' ? "1" : "3")}});
      EXPECT_TRUE(found == expected) << recompute << ", keep_gathered " << keep;
    }
  }
}

TEST_F(ZeroModel, OneMicroBatchInEveryPrecisionToTheBit) {
  if (world_->size() == 4) return;
  for (const char* optimizer : {"optim_fp32", "optim_bf16", "optim_fp16"}) {
    Layout layout{1, 1, 1, 0, {std::string("optimizer.plugin=") + optimizer, "backend.plugin=kernels_fused"}};
    const Result expected = run(layout);
    for (const int stage : {1, 2, 3}) {
      layout.stage = stage;
      EXPECT_TRUE(run(layout) == expected) << optimizer << ", stage " << stage;
    }
  }
}

// The halves of zero-bubble's backward lie apart, with other micro-batches in between.
TEST_F(ZeroModel, SplitBackwardToTheBit) {
  if (world_->size() != 4) return;
  for (const char* untied : {"model.tied_head=true", "model.tied_head=false"}) {
    const Result expected = run({2, 1, 5, 2, {"parallel.pipeline.schedule=1f1b", untied}});
    for (const int stage : {2, 3}) {
      for (const char* recompute : {"none", "full"}) {
        const Result found =
            run({2,
                 1,
                 5,
                 stage,
                 {"parallel.pipeline.schedule=zero_bubble", untied, std::string("train.recompute=") + recompute}});
        EXPECT_TRUE(found == expected) << untied << ", stage " << stage << ", recompute " << recompute;
      }
    }
  }
}

TEST_F(ZeroModel, SequenceParallelSumsOnShards) {
  if (world_->size() != 4) return;
  const std::vector<std::string> more = {"parallel.tensor.sequence_parallel=true"};
  const Result expected = run({1, 2, 1, 1, more});
  for (const int stage : {2, 3}) EXPECT_TRUE(run({1, 2, 1, stage, more}) == expected) << "stage " << stage;
}

// Case P13: every precision with every stage and dtype of messages.
TEST_F(ZeroModel, EveryPrecisionAtEveryStage) {
  if (world_->size() != 2) return;
  for (const char* optimizer : {"optim_fp32", "optim_bf16", "optim_fp16"}) {
    for (const char* message : {"auto", "f32", "bf16"}) {
      Result ones[4];
      for (const int stage : {0, 1, 2, 3}) {
        ones[stage] =
            run({1,
                 1,
                 2,
                 stage,
                 {std::string("optimizer.plugin=") + optimizer, std::string("parallel.data.reduce_dtype=") + message,
                  "backend.plugin=kernels_fused", "model.layers=1"}});
      }
      EXPECT_TRUE(ones[0] == ones[1]) << optimizer << " " << message;
      EXPECT_TRUE(ones[2] == ones[3]) << optimizer << " " << message;
      EXPECT_NEAR(ones[1].losses[0], ones[2].losses[0], 1e-5 * ones[1].losses[0]) << optimizer << " " << message;
    }
  }
}

// What is longer than one call of the network takes is cut inside: no shard needs to be shorter than 2^31 elements.
// Here a call takes 1,000 elements; a block's shard has 2,400 at two ranks.
TEST_F(ZeroModel, ShardsLongerThanOneMessage) {
  if (world_->size() == 4) return;
  Result whole[4];
  for (const int stage : {0, 1, 2, 3}) whole[stage] = run({1, 1, 2, stage, {}});
  world_.reset();  // the limit is read when the first communicator is made
  ::setenv("ESPALIER_COMM_PIECE_ELEMENTS", "1000", 1);
  world_ = make_world_communicator();
  for (const int stage : {0, 1, 2, 3}) EXPECT_TRUE(run({1, 1, 2, stage, {}}) == whole[stage]) << "stage " << stage;
  world_.reset();
  ::unsetenv("ESPALIER_COMM_PIECE_ELEMENTS");
  world_ = make_world_communicator();
}

}  // namespace
}  // namespace espalier::testing_support
