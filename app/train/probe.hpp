#pragma once

#include <string_view>
#include <vector>

#include "espalier/optimizer.hpp"

namespace espalier::app {

/// An optimizer that changes nothing and keeps the reduced, unscaled gradient of every element as a state named
/// "gradient". So gradients can be read in logical coordinates, like any state, under every strategy: `numerics`
/// compares them.
class GradientProbe final : public Optimizer {
 public:
  static constexpr const char* kState = "gradient";

  /// @param model  whose precision and loss scale a run would have; kept by reference.
  explicit GradientProbe(const Optimizer& model);

  Precision precision() const override { return model_.precision(); }
  Unit unit(const Parameter&) const override { return Unit::element; }
  std::span<const StateSpec> state() const override { return specs_; }
  void update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) override;
  void after(const Verdict&) override {}
  double loss_scale() const override { return model_.loss_scale(); }
  std::vector<OptimizerScalar> scalars() override { return {}; }
  std::string description() const override { return "gradient probe"; }

 private:
  const Optimizer& model_;
  std::vector<StateSpec> specs_;
};

}  // namespace espalier::app
