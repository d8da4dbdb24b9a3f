#include "fp16_adamw.hpp"

namespace espalier::optim_fp16 {

Fp16AdamW::Fp16AdamW(const ConfigView& config, HostContext&) : rule_(config), scale_(config) {}

void Fp16AdamW::update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) {
  rule_.update(block, block.state.subspan(1, 2), block.working, inputs, kernels, stream);
}

std::string Fp16AdamW::description() const {
  return rule_.description() + "; FP16 weights, FP32 master weights and gradient accumulation; " + scale_.description();
}

}  // namespace espalier::optim_fp16
