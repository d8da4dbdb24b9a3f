#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "espalier/error.hpp"
#include "espalier/parallel/data.hpp"
#include "support/doubles/optimizers.hpp"
#include "support/doubles/toy_model.hpp"

namespace espalier {
namespace {

using namespace testing_support;

class SingleReplicaTest : public testing::Test {
 protected:
  void bind(Optimizer& optimizer) {
    plan_.parameters = locals_;
    plan_.precision = optimizer.precision();
    plan_.end_layer = 4;
    strategy_ = make_single_replica();
    bytes_ = strategy_->plan(plan_, optimizer);
    strategy_->bind(plan_, optimizer, backend_);
    fill_weights(*strategy_, locals_, stream());
  }
  Stream& stream() { return backend_.device().lane(Lane::compute); }
  void backward(int micro_batches, int step) {
    for (int m = 0; m < micro_batches; ++m) write_gradients(*strategy_, locals_, m, 0, step, stream());
    strategy_->reduce(Do::reduce_gradients, stream());
    strategy_->reduce(Do::reduce_tied_gradients, stream());
  }

  const std::vector<LocalParameter> locals_ = whole(toy_parameters());
  PlainBackend backend_;
  StatePlan plan_;
  std::unique_ptr<DataParallel> strategy_;
  StateBytes bytes_;
};

TEST_F(SingleReplicaTest, SumsMicroBatchesAnewInEachStep) {
  ToyAdamW optimizer(DType::f32);
  bind(optimizer);
  for (int step = 0; step < 3; ++step) {
    backward(2, step);
    for (std::size_t p = 0; p < locals_.size(); ++p) {
      const View gradient = strategy_->gradient(static_cast<int>(p), 0).where;
      for (std::int64_t i = 0; i < gradient.elements(); ++i) {
        const int index = locals_[p].parameter.index;
        EXPECT_NEAR(load(gradient, i), toy_gradient(index, i, 0, 0, step) + toy_gradient(index, i, 1, 0, step), 1e-6)
            << locals_[p].parameter.name << " element " << i << " step " << step;
      }
    }
    strategy_->step(optimizer, {1e-2, nullptr, nullptr, step + 1}, stream());
  }
}

TEST_F(SingleReplicaTest, ForgetsAParameterThatNobodyWrote) {
  ToyAdamW optimizer(DType::f32);
  bind(optimizer);
  backward(1, 0);
  strategy_->step(optimizer, {1e-2, nullptr, nullptr, 1}, stream());
  strategy_->reduce(Do::reduce_gradients, stream());  // a step without any backward
  std::vector<double> slots(locals_.size(), 0.0);
  strategy_->squares(slots.data(), stream());
  for (double slot : slots) EXPECT_EQ(slot, 0.0);
}

TEST_F(SingleReplicaTest, CountsSquaresByParameter) {
  ToyAdamW optimizer(DType::bf16);
  bind(optimizer);
  backward(1, 0);
  std::vector<double> slots(locals_.size(), 0.0);
  strategy_->squares(slots.data(), stream());
  for (std::size_t p = 0; p < locals_.size(); ++p) {
    double expected = 0;
    for (std::int64_t i = 0; i < locals_[p].parameter.shape.elements(); ++i) {
      const double g = toy_gradient(static_cast<int>(p), i, 0, 0, 0);
      expected += g * g;
    }
    EXPECT_NEAR(slots[p], expected, 1e-6 * expected) << locals_[p].parameter.name;
  }
}

TEST_F(SingleReplicaTest, KeepsMasterAndWorkingWeightsTogether) {
  for (DType working : {DType::f32, DType::bf16, DType::f16}) {
    ToyAdamW optimizer(working);
    bind(optimizer);
    const std::uint64_t version = strategy_->weight_version();
    EXPECT_NE(version, 0u);
    backward(1, 0);
    strategy_->step(optimizer, {1e-2, nullptr, nullptr, 1}, stream());
    EXPECT_NE(strategy_->weight_version(), version);
    std::size_t moved = 0;
    for (const StatePiece& piece : strategy_->state()) {
      if (piece.state != "master") continue;
      const View weight = strategy_->weight(piece.parameter);
      EXPECT_EQ(weight.dtype, working);
      EXPECT_EQ(piece.data.dtype, DType::f32);
      ASSERT_EQ(piece.data.elements(), weight.elements());
      for (std::int64_t i = 0; i < weight.elements(); ++i) {
        float rounded = load(piece.data, i);
        const View place = View::vector(&rounded, 1, DType::f32);
        with_float_type(working, [&](auto type) { rounded = to_float(from_float<decltype(type)>(load(place, 0))); });
        EXPECT_EQ(load(weight, i), rounded);
        moved += load(piece.data, i) != toy_weight(piece.parameter, i);
      }
    }
    EXPECT_GT(moved, 600u);
  }
}

TEST_F(SingleReplicaTest, ASkippedStepChangesNoWeightButClearsGradients) {
  ToyAdamW optimizer(DType::bf16);
  bind(optimizer);
  const std::int32_t skip = 1;
  backward(1, 0);
  strategy_->step(optimizer, {1e-2, nullptr, &skip, 1}, stream());
  for (const StatePiece& piece : strategy_->state()) {
    for (std::int64_t i = 0; i < piece.data.elements(); ++i) {
      EXPECT_EQ(load(piece.data, i), piece.state == "master" ? toy_weight(piece.parameter, i) : 0.0f);
    }
  }
  backward(1, 1);
  const View tied = strategy_->gradient(0, 0).where;
  EXPECT_NEAR(load(tied, 3), toy_gradient(0, 3, 0, 0, 1), 1e-6);
}

TEST_F(SingleReplicaTest, HandsWholeMatricesAndAllKindsOfState) {
  ToyMuon optimizer;
  bind(optimizer);
  std::map<std::string, int> pieces;
  for (const StatePiece& piece : strategy_->state()) {
    pieces[std::string(piece.state)] += 1;
    if (piece.state == "temperature") {
      EXPECT_EQ(piece.parameter, -1);
      EXPECT_EQ(load(piece.data, 0), 0.5f);
    }
  }
  EXPECT_EQ(pieces,
            (std::map<std::string, int>{
                {"master", 9}, {"mean", 9}, {"direction", 9}, {"gram", 9}, {"updates", 9}, {"temperature", 1}}));
  for (int step = 0; step < 2; ++step) {
    backward(1, step);
    strategy_->step(optimizer, {1e-2, nullptr, nullptr, step + 1}, stream());
  }
  for (const StatePiece& piece : strategy_->state()) {
    if (piece.state == "updates") {
      EXPECT_EQ(load(piece.data, 0), 2.0f);
    }
    // One Newton-Schulz step from Frobenius norm 1: no element of a step exceeds 1.5 lr.
    if (piece.state == "master" && locals_[static_cast<std::size_t>(piece.parameter)].parameter.shape.rank() == 2) {
      for (std::int64_t i = 0; i < piece.data.elements(); ++i) {
        EXPECT_NEAR(load(piece.data, i), toy_weight(piece.parameter, i), 2 * 1.5e-2);
      }
    }
  }
}

TEST_F(SingleReplicaTest, ReservesWhatItPlans) {
  ToyAdamW optimizer(DType::bf16);
  bind(optimizer);
  std::map<std::string, std::size_t> use;
  for (const MemoryUse& entry : backend_.device().memory_use()) use[entry.purpose] = entry.bytes;
  EXPECT_EQ(use["weights"], bytes_.weights);
  EXPECT_EQ(use["gradients"], bytes_.gradients);
  EXPECT_EQ(use["optimizer"], bytes_.optimizer);
  EXPECT_EQ(bytes_.optimizer, 6 * bytes_.weights);  // three FP32 states against BF16 weights
  EXPECT_EQ(bytes_.scratch, 0u);
}

class NoMaster final : public Optimizer {
 public:
  Precision precision() const override { return {DType::bf16, DType::bf16, DType::f32, false}; }
  Unit unit(const Parameter&) const override { return Unit::element; }
  std::span<const StateSpec> state() const override { return {}; }
  void update(const UpdateBlock&, const StepInputs&, UpdateKernels&, Stream&) override {}
  void after(const Verdict&) override {}
  double loss_scale() const override { return 1; }
  std::vector<OptimizerScalar> scalars() override { return {}; }
  std::string description() const override { return "none"; }
};

TEST_F(SingleReplicaTest, RefusesSixteenBitWeightsWithoutMaster) {
  NoMaster optimizer;
  EXPECT_THROW(bind(optimizer), ConfigError);
}

}  // namespace
}  // namespace espalier
