// What all stages must agree on, and what they may not wait for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "ranks/pipeline/pipeline_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier {
namespace {

using namespace testing_support;

class HostStream final : public Stream {};

class Stages : public testing::Test {
 protected:
  Stages() : world_(make_world_communicator()) { options_.pipeline = world_->size(); }
  /// Whether a number is the same on all ranks.
  bool same(double value) {
    double ends[2] = {value, -value};
    world_->run(
        {Verb::all_reduce, View::vector(ends, 2, DType::f64), View::vector(ends, 2, DType::f64), Reduce::max, 0, 0},
        stream_);
    return ends[0] == -ends[1];
  }
  bool last() const { return world_->rank() == world_->size() - 1; }

  std::unique_ptr<Communicator> world_;
  HostStream stream_;
  RunOptions options_;
};

// Case X16: every message far above what MPI sends without waiting for the other side.
TEST_F(Stages, MessagesOfEightMebibytesDoNotWaitForEachOther) {
  options_.micro_batches = 2;
  options_.more = {"model.layers=" + std::to_string(world_->size() * 2 - 2),
                   "parallel.pipeline.cut=slots",
                   "model.hidden=16",
                   "model.heads=1",
                   "model.ffn=16",
                   "model.seq_length=8",
                   "model.attention_dropout=0",
                   "model.hidden_dropout=0",
                   "train.micro_batch_size=16384",
                   "backend.plugin=kernels_fused"};
  options_.schedule = "interleaved";
  PipelineRun run(*world_, options_);
  const Verdict verdict = run.step();
  EXPECT_TRUE(verdict.finite);
  EXPECT_TRUE(same(verdict.norm));
}

// Case X11: ten steps of ZeRO 1; both copies of the tied embedding stay equal to the bit.
TEST_F(Stages, BothCopiesOfTheTiedEmbeddingStayEqual) {
  for (const char* optimizer : {"optim_fp32", "optim_bf16"}) {
    options_.more = {std::string("optimizer.plugin=") + optimizer, "parallel.data.stage=1"};
    PipelineRun run(*world_, options_);
    std::vector<std::byte> before = run.tied_copy();
    for (int step = 0; step < 10; ++step) {
      run.step();
      std::vector<std::byte> mine = run.tied_copy();
      EXPECT_EQ(mine.empty(), world_->rank() != 0 && !last());
      std::vector<std::byte> first = mine;
      if (world_->rank() != 0) first.resize(before.size());
      if (mine.empty()) continue;
      const View view = View::vector(first.data(), std::ssize(first), DType::u8);
      if (world_->rank() == 0) {
        world_->run({Verb::send, view, {}, Reduce::sum_rank_order, world_->size() - 1, 0}, stream_);
      } else {
        world_->run({Verb::receive, {}, view, Reduce::sum_rank_order, 0, 0}, stream_);
        EXPECT_EQ(first, mine) << optimizer << " step " << step;
      }
      EXPECT_NE(mine, before) << "it learns";
      before = mine;
    }
  }
}

/// Norm of a step whose gradients are 0 but for the tied one, which has norm 10 wherever it is, over that of the
/// verdict's own factors: micro-batches, and the share of targets that count.
double norm_of_tied_gradient(PipelineRun& run, const RunOptions& options) {
  const Grid& grid = run.session().facts().grid;
  const bool end = grid.pipeline_rank == 0 || grid.pipeline_rank == grid.pipeline - 1;
  run.data().after_reduce = [&run, when = end && grid.pipeline > 1 ? Do::reduce_tied_gradients
                                                                   : Do::reduce_gradients](Do what) {
    if (what != when) return;
    const int tied = run.position_of("word_embeddings.weight");
    for (int p = 0; p < static_cast<int>(run.executor().parameters().size()); ++p) {
      const View gradient = run.data().gradient(p, 0).where;
      const double norm = p == tied ? 10.0 : 0.0;
      const double value = norm / std::sqrt(static_cast<double>(gradient.elements()));
      for (std::int64_t i = 0; i < gradient.elements(); ++i) gradient.as<float>()[i] = static_cast<float>(value);
    }
  };
  const Verdict verdict = run.step();
  const double nominal = 2.0 * 16 * options.micro_batches;
  return verdict.norm / (nominal / static_cast<double>(verdict.tokens) / options.micro_batches);
}

// Case X01: a tied gradient of norm 10, on both ends, counts once (not 14.142); as on one stage.
TEST_F(Stages, TheTiedGradientCountsOnce) {
  PipelineRun run(*world_, options_);
  EXPECT_NEAR(norm_of_tied_gradient(run, options_), 10.0, 1e-5);
  const auto self = make_self_communicator("world");
  options_.pipeline = 1;
  PipelineRun one(*self, options_);
  EXPECT_NEAR(norm_of_tied_gradient(one, options_), 10.0, 1e-5);
}

// Case P03: an overflow on one stage alone; all skip that step and lower the same scale.
TEST_F(Stages, AllSkipWhatOneStageCannotTake) {
  options_.more = {"optimizer.plugin=optim_fp16", "optimizer.hysteresis=1"};
  PipelineRun run(*world_, options_);
  int step = 0;
  run.data().after_reduce = [&](Do what) {
    if (step != 3 || what != Do::reduce_gradients || !last()) return;
    const int p = run.position_of("ln_f.weight");
    ASSERT_GE(p, 0);
    run.data().gradient(p, 0).where.as<float>()[3] = std::numeric_limits<float>::infinity();
  };
  for (step = 1; step <= 4; ++step) {
    const double scale = run.session().optimizer().loss_scale();
    const auto before = run.masters();
    const Verdict verdict = run.step();
    EXPECT_EQ(verdict.finite, step != 3);
    EXPECT_TRUE(same(run.session().optimizer().loss_scale()));
    EXPECT_EQ(run.masters() == before, step == 3) << "step " << step;
    if (step == 3) {
      EXPECT_EQ(verdict.first_bad, "ln_f.weight");
      EXPECT_LT(run.session().optimizer().loss_scale(), scale);
    }
  }
}

// 2·v·m messages of a middle stage; the first and the last part of the model send one way only, and the tied gradient.
TEST_F(Stages, SendWhatTheFormulaSays) {
  for (const char* recompute : {"none", "full"}) {
    for (const int m : {1, 2, 5}) {
      options_.schedule = "interleaved";
      options_.micro_batches = m;
      options_.more = {std::string("train.recompute=") + recompute, "model.vocab_size=264"};
      PipelineRun run(*world_, options_);
      run.step();
      const int messages = (world_->rank() == 0 || last() ? 2 * 2 - 1 : 2 * 2) * m;
      const std::int64_t tied = world_->rank() == 0 || last() ? std::int64_t{264} * 32 * 4 : 0;
      EXPECT_EQ(run.sent_bytes(), std::int64_t{messages} * 2 * 16 * 32 * 4 + tied) << recompute << " m " << m;
    }
  }
}

TEST_F(Stages, OfATensorGroupSendTheirPart) {
  if (world_->size() != 4) return;
  options_.pipeline = options_.tensor = 2;
  std::int64_t bytes[2] = {};
  for (const bool scatter : {false, true}) {
    options_.tied = false;
    options_.more = {std::string("parallel.pipeline.scatter_gather=") + (scatter ? "true" : "false")};
    PipelineRun run(*world_, options_);
    run.step();
    bytes[scatter ? 1 : 0] = run.sent_bytes();
  }
  EXPECT_EQ(bytes[0], std::int64_t{options_.micro_batches} * 2 * 16 * 32 * 4);
  EXPECT_EQ(bytes[1], bytes[0] / 2);
}

TEST_F(Stages, TheLossReachesAllRanks) {
  PipelineRun run(*world_, options_);
  const Verdict verdict = run.step();
  EXPECT_GT(verdict.loss_sum, 0);
  EXPECT_TRUE(same(verdict.loss_sum));
  EXPECT_TRUE(same(verdict.norm));
  const double valid = run.evaluate();
  EXPECT_GT(valid, 0);
  EXPECT_TRUE(same(valid));
}

}  // namespace
}  // namespace espalier
