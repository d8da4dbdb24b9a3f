// Optimizers for tests: AdamW with or without separate master weights, and one that works on whole matrices.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "espalier/optimizer.hpp"

namespace espalier::testing_support {

/// AdamW: in 16 bits with FP32 master weights, in FP32 without.
class ToyAdamW final : public Optimizer {
 public:
  explicit ToyAdamW(DType working, DType message = DType::f32)
      : precision_{working, message, DType::f32, false}, has_master_(working != DType::f32) {}

  Precision precision() const override { return precision_; }
  Unit unit(const Parameter&) const override { return Unit::element; }
  std::span<const StateSpec> state() const override { return std::span(kState).subspan(has_master_ ? 0 : 1); }

  void update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) override {
    AdamW args;
    args.gradient = block.gradient;
    args.master = block.master;
    args.moment1 = block.state[has_master_ ? 1 : 0];
    args.moment2 = block.state[has_master_ ? 2 : 1];
    args.working = block.working;
    args.lr = inputs.lr;
    args.weight_decay = block.parameter->decays ? 0.1 : 0.0;
    args.step = inputs.applied_steps;
    args.factor = inputs.factor;
    args.skip = inputs.skip;
    kernels.adamw(args, stream);
  }

  void after(const Verdict&) override {}
  double loss_scale() const override { return 1; }
  std::vector<OptimizerScalar> scalars() override { return {}; }
  std::string description() const override { return "toy AdamW"; }

 private:
  static constexpr StateSpec kState[] = {{"master"}, {"moment1"}, {"moment2"}};
  Precision precision_;
  bool has_master_;
};

/// An optimizer with matrix state, in the manner of Muon (Jordan et al. 2024): the sign of a running mean, scaled to a
/// Frobenius norm of one, drawn towards the nearest orthogonal matrix by one Newton-Schulz step; vectors follow the
/// running mean. It needs the whole logical matrix, keeps one number for each tensor and one for the whole model. In 16
/// bits with FP32 master weights, in FP32 without.
class ToyMuon final : public Optimizer {
 public:
  explicit ToyMuon(DType working = DType::f32)
      : precision_{working, DType::f32, DType::f32, false}, has_master_(working != DType::f32) {}

  Precision precision() const override { return precision_; }
  Unit unit(const Parameter& parameter) const override {
    return parameter.shape.rank() == 2 ? Unit::tensor : Unit::element;
  }
  std::span<const StateSpec> state() const override { return std::span(kState).subspan(has_master_ ? 0 : 1); }

  void update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) override {
    const std::span<const View> state = block.state.subspan(has_master_ ? 1 : 0);
    const View &mean = state[0], &direction = state[1], &gram_room = state[2];
    kernels.lerp(mean, block.gradient, 0.1, inputs.factor, inputs.skip, stream);
    // Counts the updates of this tensor: the temperature is a half.
    kernels.axpy(2.0, state[4], state[3], {}, nullptr, inputs.skip, stream);
    if (unit(*block.parameter) == Unit::element) {
      kernels.axpy(-inputs.lr, mean, block.master, block.working, nullptr, inputs.skip, stream);
      return;
    }
    kernels.sign(mean, direction, inputs.skip, stream);
    kernels.scale(direction, 1.0 / std::sqrt(static_cast<double>(direction.elements())), nullptr, inputs.skip, stream);
    // X ← 1.5 X − 0.5 (X Xᵀ) X, with the smaller of the two Gram matrices; it fits in room shaped like X.
    const bool wide = direction.rows <= direction.cols;
    const std::int64_t n = wide ? direction.rows : direction.cols;
    const View gram = View::matrix(gram_room.data, n, n, DType::f32);
    kernels.gemm(direction, !wide, direction, wide, 1.0, 0.0, gram, stream);
    kernels.axpy(-1.5 * inputs.lr, direction, block.master, block.working, nullptr, inputs.skip, stream);
    const View product = block.gradient;  // ours until the strategy zeroes it
    if (wide) {
      kernels.gemm(gram, false, direction, false, 1.0, 0.0, product, stream);
    } else {
      kernels.gemm(direction, false, gram, false, 1.0, 0.0, product, stream);
    }
    kernels.axpy(0.5 * inputs.lr, product, block.master, block.working, nullptr, inputs.skip, stream);
  }

  void after(const Verdict&) override {}
  double loss_scale() const override { return 1; }
  std::vector<OptimizerScalar> scalars() override { return {}; }
  std::string description() const override { return "toy optimizer of whole matrices"; }

 private:
  static constexpr StateSpec kState[] = {{"master"},
                                         {"mean"},
                                         {"direction"},
                                         {"gram"},
                                         {"updates", DType::f32, Keep::per_tensor, 0},
                                         {"temperature", DType::f32, Keep::global, 0.5f}};
  Precision precision_;
  bool has_master_;
};

}  // namespace espalier::testing_support
