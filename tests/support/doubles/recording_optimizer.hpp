// An optimizer that is forwarded to another and keeps the reduced, unscaled gradient of every element as a state named
// "gradient": it trains, and its gradients can be read in logical coordinates under every strategy.
#pragma once

#include <vector>

#include "espalier/optimizer.hpp"
#include "train/probe.hpp"

namespace espalier::testing_support {

class RecordingOptimizer final : public Optimizer {
 public:
  explicit RecordingOptimizer(Optimizer& inner) : inner_(inner) {
    const auto specs = inner.state();
    specs_.assign(specs.begin(), specs.end());
    specs_.push_back({app::GradientProbe::kState, DType::f32, Keep::like_parameter, 0.0f});
  }

  Precision precision() const override { return inner_.precision(); }
  Unit unit(const Parameter& parameter) const override { return inner_.unit(parameter); }
  std::span<const StateSpec> state() const override { return specs_; }
  void update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) override {
    const View& kept = block.state.back();
    kernels.scale(kept, 0.0, nullptr, nullptr, stream);
    kernels.axpy(1.0, block.gradient, kept, {}, inputs.factor, nullptr, stream);
    UpdateBlock rest = block;
    rest.state = block.state.first(block.state.size() - 1);
    inner_.update(rest, inputs, kernels, stream);
  }
  void after(const Verdict& verdict) override { inner_.after(verdict); }
  double loss_scale() const override { return inner_.loss_scale(); }
  std::vector<OptimizerScalar> scalars() override { return inner_.scalars(); }
  std::string description() const override { return inner_.description(); }

 private:
  Optimizer& inner_;
  std::vector<StateSpec> specs_;
};

}  // namespace espalier::testing_support
