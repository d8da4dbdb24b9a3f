#pragma once

#include "espalier/adamw.hpp"
#include "espalier/host.hpp"

namespace espalier::optim_bf16 {

/// BF16 weights and activations over FP32 master weights, FP32 gradient accumulation, AdamW. No loss scale: BF16 has FP32's range.
class Bf16AdamW final : public Optimizer {
 public:
  Bf16AdamW(const ConfigView& config, HostContext& host);

  Precision precision() const override { return {DType::bf16, DType::f32, DType::f32, false}; }
  Unit unit(const Parameter&) const override { return Unit::element; }
  std::span<const StateSpec> state() const override { return kAdamWMasterState; }
  void update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) override;
  void after(const Verdict&) override {}
  double loss_scale() const override { return 1.0; }
  std::vector<OptimizerScalar> scalars() override { return {}; }
  std::string description() const override;

 private:
  AdamWRule rule_;
};

}  // namespace espalier::optim_bf16
