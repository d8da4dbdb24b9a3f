// parallel_zero under the model itself: recomputation, schedules with split backward, evaluation between steps, 16-bit
// optimizers, and what a step sends.
#include <gtest/gtest.h>

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

  const std::unique_ptr<Communicator> world_ = make_world_communicator();
};

TEST_F(ZeroModel, RecomputationAndStages2And3ToTheBit) {
  if (world_->size() == 4) return;
  const Result expected = run({1, 1, 3, 2, {}});
  for (const char* recompute : {"none", "selective", "full"}) {
    for (const char* keep : {"0", "2"}) {
      const Result found =
          run({1,
               1,
               3,
               3,
               {std::string("train.recompute=") + recompute, std::string("parallel.data.keep_gathered=") + keep}});
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

/// Bytes that this rank sends in its data group in one step.
std::int64_t data_bytes(const CommCounters& counters) {
  std::int64_t bytes = 0;
  for (const CommTotal& total : counters.totals()) bytes += total.group == "data" ? total.bytes : 0;
  return bytes;
}

/// How often stage 3 gathers a parameter for each micro-batch: for forward and for backward; the head's own once, it
/// does both at the same time; a table is not needed in the embedding's backward.
std::int64_t gathers(const LocalParameter& local, int head_layer, bool one_stage) {
  if (local.parameter.tied && one_stage) return 2;
  const bool table = local.parameter.role == Role::word_embedding || local.parameter.role == Role::head_weight;
  return table || local.parameter.layer == head_layer ? 1 : 2;
}

// (d − 1)/d of the parameters, times what each stage moves of one: gradients g, weights w bytes wide.
TEST_F(ZeroModel, BytesOfAStep) {
  const int ranks = world_->size();
  if (ranks == 3) return;
  for (const int pipeline : {1, 2}) {
    if (ranks % pipeline != 0 || ranks / pipeline == 1) continue;
    const std::int64_t d = ranks / pipeline;
    for (const int stage : {0, 1, 2, 3}) {
      for (const std::int64_t m : {1, 2, 5}) {
        for (const char* recompute :
             m == 2 ? std::vector<const char*>{"none", "full"} : std::vector<const char*>{"none"}) {
          Layout layout{pipeline,
                        1,
                        static_cast<int>(m),
                        stage,
                        {"optimizer.plugin=optim_bf16", "parallel.data.reduce_dtype=f32",
                         "parallel.data.keep_gathered=0", "model.layers=2", "model.hidden=" + std::to_string(64 * d),
                         "model.heads=4", "model.ffn=" + std::to_string(64 * d), "model.vocab_size=64",
                         "model.seq_length=4", std::string("train.recompute=") + recompute}};
          SessionRig rig(*world_, options_of(layout));
          Optimizer& optimizer = rig.session().optimizer();
          const Walk walk = rig.train_walk();
          rig.bind(std::span(&walk, 1), optimizer, 0.02);
          for (const MemoryUse& part : rig.executor().state_bytes(std::span(&walk, 1), optimizer).parts) {
            EXPECT_TRUE(part.bytes == 0 || !part.purpose.starts_with("padding")) << part.purpose;
          }
          std::int64_t parameters = 0, gathered = 0;
          for (const LocalParameter& local : rig.executor().parameters()) {
            const std::int64_t n = local.placement.local.elements();
            parameters += n;
            gathered += n * gathers(local, 3, pipeline == 1);
          }
          const Grid& grid = rig.facts().grid;
          HashedBatches batches(rig.facts().model, 1, m * d, static_cast<int>(d), grid.data_rank, 0);
          rig.counters().reset();
          rig.executor().train_step(walk, batches, {1e-3, 1.0, 1}, optimizer);
          rig.data().sync(rig.stream());                // what the next forward would bring
          const std::int64_t gradient = 4, weight = 2;  // bytes
          const std::int64_t elements[] = {2 * parameters * gradient, parameters * (gradient + weight),
                                           parameters * (m * gradient + weight),
                                           m * (parameters * gradient + gathered * weight)};
          EXPECT_EQ(data_bytes(rig.counters()), elements[stage] / d * (d - 1))
              << "pipeline " << pipeline << " data " << d << " stage " << stage << " m " << m << " " << recompute;
        }
      }
    }
  }
}

}  // namespace
}  // namespace espalier::testing_support
