// Losses, norms and gradients do not depend on how many ranks share a layer.
#include <cmath>

#include "ranks/tensor/layout_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier::testing_support {
namespace {

/// A part of the world of tensor · data ranks; ranks beyond the last whole part join none.
std::unique_ptr<Communicator> part_of(Communicator& world, const Layout& layout) {
  const int ranks = layout.tensor * layout.data;
  const int part = world.rank() / ranks;
  return world.split((part + 1) * ranks <= world.size() ? part : -1, world.rank(), "world");
}

double mean_loss(const Verdict& verdict) { return verdict.loss_sum / static_cast<double>(verdict.tokens); }

/// Layouts that a world of `ranks` can hold: all, or a few that have every way of communicating.
std::vector<Layout> layouts(int ranks, bool all) {
  std::vector<Layout> list;
  const auto add = [&](int tensor, int data, bool sp, int zero) {
    Layout layout;
    layout.tensor = tensor;
    layout.data = data;
    layout.sequence_parallel = sp;
    layout.zero = zero;
    list.push_back(layout);
  };
  if (ranks == 3) {
    add(3, 1, false, 1);
    add(3, 1, true, 0);
    return list;
  }
  add(4, 1, false, 0);
  add(2, 2, true, 1);
  if (!all) return list;
  add(4, 1, true, 0);
  add(2, 1, false, 1);
  add(2, 1, true, 1);
  add(2, 2, false, 0);
  add(2, 2, false, 1);
  add(2, 2, true, 0);
  return list;
}

void expect_steps(LayoutRun& run, LayoutRun& alone, int steps, double tolerance = 1e-5) {
  for (int s = 0; s < steps; ++s) {
    const Verdict found = run.step(s), truth = alone.step(s);
    ASSERT_EQ(found.tokens, truth.tokens);
    ASSERT_NEAR(mean_loss(found), mean_loss(truth), tolerance * mean_loss(truth)) << "step " << s;
    ASSERT_NEAR(found.norm, truth.norm, tolerance * truth.norm) << "step " << s;
  }
}

class Layouts : public testing::Test {
 protected:
  /// Calls body(run, alone) for every layout, `like` in all that layouts() leaves open.
  template <class Body>
  void for_each(const ModelShape& model, const Layout& like, Body&& body, bool all = false) {
    for (const Layout& shape : layouts(world_->size(), all)) {
      Layout layout = like;
      layout.tensor = shape.tensor;
      layout.data = shape.data;
      layout.sequence_parallel = shape.sequence_parallel;
      layout.zero = shape.zero;
      SCOPED_TRACE(testing::PrintToString(layout));
      const auto part = part_of(*world_, layout);
      if (part == nullptr) continue;
      LayoutRun run(*part, model, layout);
      const auto alone = run_alone(model, layout);
      body(run, *alone);
    }
  }
  const std::unique_ptr<Communicator> world_ = make_world_communicator();
};

// Case X03: the norm counts every logical element once.
TEST_F(Layouts, TenStepsAreOneRanks) {
  const auto body = [](LayoutRun& run, LayoutRun& alone) {
    expect_steps(run, alone, 10);
    const EvalResult found = run.evaluate(11), truth = alone.evaluate(11);
    EXPECT_EQ(found.tokens, truth.tokens);
    EXPECT_NEAR(found.loss_sum, truth.loss_sum, 1e-5 * truth.loss_sum);
  };
  for_each(small_model(), {}, body, true);
}

/// Case X05: norms see only their rank's tokens under sequence parallelism.
void expect_norm_gradients(LayoutRun& run, LayoutRun& alone) {
  const auto found = run.gather(GradientProbe::kState), truth = alone.gather(GradientProbe::kState);
  for (const Parameter& parameter : run.parameters().all()) {
    if (parameter.role != Role::norm_weight && parameter.role != Role::norm_bias) continue;
    const auto& a = found.at(std::string(parameter.name));
    const auto& b = truth.at(std::string(parameter.name));
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
      difference = std::max(difference, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    }
    EXPECT_LE(difference, 1e-5 * largest) << parameter.name;
  }
}

TEST_F(Layouts, FirstGradientsAreOneRanks) {
  Layout like;
  like.probe = true;
  const auto body = [](LayoutRun& run, LayoutRun& alone) {
    run.step(0);
    alone.step(0);
    expect_gradients(run, alone, 1e-4);
    expect_norm_gradients(run, alone);
  };
  for_each(small_model(), like, body, true);
}

TEST_F(Layouts, UntiedHeadAndLearnedPositions) {
  ModelShape model = small_model();
  model.tied_head = false;
  model.embedding_norm = false;
  model.positions = 12;
  for_each(model, {}, [](LayoutRun& run, LayoutRun& alone) { expect_steps(run, alone, 4); });
  Layout like;
  like.probe = true;
  for_each(model, like, [](LayoutRun& run, LayoutRun& alone) {
    run.step(0);
    alone.step(0);
    expect_gradients(run, alone, 1e-4);
  });
}

// Case X13: masks are those of logical coordinates. One of them shared or cut in the wrong place changes the loss.
TEST_F(Layouts, DropoutIsOneRanks) {
  ModelShape model = small_model();
  model.attention_dropout = 0.25;
  model.hidden_dropout = 0.25;
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    Layout like;
    like.recompute = recompute;
    for_each(model, like, [](LayoutRun& run, LayoutRun& alone) { expect_steps(run, alone, 3); });
  }
}

// Case X13: the first weights are one rank's to the bit, and shards are not copies of each other.
TEST_F(Layouts, InitialWeightsAreOneRanksToTheBit) {
  for_each(small_model(), {}, [](LayoutRun& run, LayoutRun& alone) {
    EXPECT_EQ(run.gather("master"), alone.gather("master"));
    for (std::size_t p = 0; p < run.executor().parameters().size(); ++p) {
      const LocalParameter& local = run.executor().parameters()[p];
      if (local.parameter.role != Role::mlp_up_weight) continue;
      const View own = run.data().weight(static_cast<int>(p));
      std::vector<float> first(static_cast<std::size_t>(own.elements()));
      std::copy_n(own.as<float>(), first.size(), first.data());
      const std::vector<float> mine = first;
      run.tensor_group().run({Verb::broadcast, View::vector(first.data(), std::ssize(first), DType::f32),
                              View::vector(first.data(), std::ssize(first), DType::f32), Reduce::sum_rank_order, 0, 0},
                             run.stream());
      EXPECT_EQ(first == mine, run.tensor().rank() == 0) << local.parameter.name;
    }
  });
}

TEST_F(Layouts, FusedKernels) {
  Layout like;
  like.provider = "kernels_fused";
  for_each(small_model(), like, [](LayoutRun& run, LayoutRun& alone) { expect_steps(run, alone, 4); });
}

TEST_F(Layouts, LibrarySumsAreEqualWithinTolerance) {
  Layout like;
  like.reduction = "library";
  for_each(small_model(), like, [](LayoutRun& run, LayoutRun& alone) { expect_steps(run, alone, 4); });
}

TEST_F(Layouts, OverlapChangesNoBit) {
  for (Layout layout : layouts(world_->size(), false)) {
    const auto part = part_of(*world_, layout);
    if (part == nullptr) continue;
    LayoutRun with(*part, small_model(), layout);
    layout.overlap = false;
    LayoutRun without(*part, small_model(), layout);
    for (int s = 0; s < 3; ++s) {
      const Verdict a = with.step(s), b = without.step(s);
      EXPECT_EQ(a.loss_sum, b.loss_sum);
      EXPECT_EQ(a.norm, b.norm);
    }
    EXPECT_EQ(with.gather("master"), without.gather("master"));
  }
}

/// 16-bit weights: not more off one rank's run than that is off its own FP32 run, give or take.
TEST_F(Layouts, SixteenBitWeights) {
  for (const char* optimizer : {"optim_bf16", "optim_fp16"}) {
    Layout like;
    like.optimizer = optimizer;
    for_each(small_model(), like, [](LayoutRun& run, LayoutRun& alone) {
      for (int s = 0; s < 10; ++s) {
        const Verdict found = run.step(s), truth = alone.step(s);
        ASSERT_EQ(found.finite, truth.finite);
        ASSERT_NEAR(mean_loss(found), mean_loss(truth), 3e-3) << "step " << s;
        ASSERT_NEAR(found.norm, truth.norm, 0.02 * truth.norm) << "step " << s;
      }
    });
  }
}

// Case X10: the loss is a mean over tokens, wherever they are.
TEST_F(Layouts, MicroBatchesWithOneTokenAndWithThree) {
  const auto keep = [](HashedBatches source) {
    source.keep(0, 1);
    source.keep(1, 3);
    return source;
  };
  Layout one;
  one.global = one.micro = 2;
  one.probe = true;
  const auto together = run_alone(small_model(), one);
  HashedBatches source = keep(together->batches(0));
  const Verdict truth = together->step(source, 0);
  ASSERT_EQ(truth.tokens, 4);
  for (Layout layout : layouts(world_->size(), false)) {
    SCOPED_TRACE(testing::PrintToString(layout));
    layout.global = 2;
    layout.micro = 1;
    layout.probe = true;
    const auto part = part_of(*world_, layout);
    if (part == nullptr) continue;
    LayoutRun run(*part, small_model(), layout);
    HashedBatches apart = keep(run.batches(0));
    const Verdict found = run.step(apart, 0);
    EXPECT_EQ(found.tokens, 4);
    EXPECT_NEAR(mean_loss(found), mean_loss(truth), 1e-5 * mean_loss(truth));
    expect_gradients(run, *together, 1e-4);
  }
}

}  // namespace
}  // namespace espalier::testing_support
