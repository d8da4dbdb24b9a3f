#include "fp32_adamw.hpp"

namespace espalier::optim_fp32 {

Fp32AdamW::Fp32AdamW(const ConfigView& config, HostContext&) : rule_(config) {}

void Fp32AdamW::update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) {
  rule_.update(block, block.state, View{}, inputs, kernels, stream);
}

std::string Fp32AdamW::description() const { return rule_.description() + "; all FP32"; }

}  // namespace espalier::optim_fp32
