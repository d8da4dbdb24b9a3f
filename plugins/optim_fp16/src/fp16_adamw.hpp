#pragma once

#include "espalier/adamw.hpp"
#include "espalier/host.hpp"
#include "loss_scale.hpp"

namespace espalier::optim_fp16 {

/// FP16 weights and activations over FP32 master weights, with a loss scale, FP32 gradient accumulation, AdamW.
class Fp16AdamW final : public Optimizer {
 public:
  Fp16AdamW(const ConfigView& config, HostContext& host);

  Precision precision() const override { return {DType::f16, DType::f32, DType::f32, scale_.dynamic()}; }
  Unit unit(const Parameter&) const override { return Unit::element; }
  std::span<const StateSpec> state() const override { return kAdamWMasterState; }
  void update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) override;
  void after(const Verdict& verdict) override { scale_.after(verdict.finite, verdict.first_bad); }
  double loss_scale() const override { return scale_.value(); }
  std::vector<OptimizerScalar> scalars() override { return scale_.scalars(); }
  std::string description() const override;

 private:
  AdamWRule rule_;
  LossScale scale_;
};

}  // namespace espalier::optim_fp16
