#pragma once

#include "espalier/adamw.hpp"
#include "espalier/host.hpp"

namespace espalier::optim_fp32 {

/// Everything in FP32: the working weights are the master weights.
class Fp32AdamW final : public Optimizer {
 public:
  Fp32AdamW(const ConfigView& config, HostContext& host);

  Precision precision() const override { return {}; }
  Unit unit(const Parameter&) const override { return Unit::element; }
  std::span<const StateSpec> state() const override { return std::span(kAdamWMasterState).subspan(1); }
  void update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) override;
  void after(const Verdict&) override {}
  double loss_scale() const override { return 1.0; }
  std::vector<OptimizerScalar> scalars() override { return {}; }
  std::string description() const override;

 private:
  AdamWRule rule_;
};

}  // namespace espalier::optim_fp32
