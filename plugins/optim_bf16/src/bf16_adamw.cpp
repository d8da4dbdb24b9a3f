#include "bf16_adamw.hpp"

namespace espalier::optim_bf16 {

Bf16AdamW::Bf16AdamW(const ConfigView& config, HostContext&) : rule_(config) {}

void Bf16AdamW::update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) {
  rule_.update(block, block.state.subspan(1, 2), block.working, inputs, kernels, stream);
}

std::string Bf16AdamW::description() const {
  return rule_.description() + "; BF16 weights, FP32 master weights and gradient accumulation";
}

}  // namespace espalier::optim_bf16
