#include "fused_backend.hpp"

namespace espalier::kernels_fused {

FusedBackend::FusedBackend(const ConfigView& config, HostContext& host)
    : FusedBackend(config.string("instruction_set"), host.threads()) {}

FusedBackend::FusedBackend(std::string_view instruction_set, ThreadPool& pool)
    : set_(choose_instruction_set(instruction_set)),
      device_(make_cpu_device()),
      reference_(make_reference_backend(pool)),
      lanes_(pool),
      onednn_(set_, pool.size()),
      matrix_(set_, onednn_, lanes_),
      attention_(simd_table(set_), lanes_),
      norm_(simd_table(set_), lanes_),
      elementwise_(simd_table(set_), lanes_),
      loss_(simd_table(set_), lanes_),
      update_(simd_table(set_), lanes_, matrix_, *reference_->kernels().update),
      kernels_{&matrix_, &attention_, &norm_, &elementwise_, &loss_, &update_, reference_->kernels().random} {}

std::string FusedBackend::description() const {
  std::string text = "kernels_fused: " + std::string(title(set_)) + " (oneDNN " + onednn_version() + ")";
  text += set_ >= InstructionSet::avx512_bf16 ? ", BF16 multiplied as it is, FP16 widened to FP32"
                                              : ", BF16 and FP16 widened to FP32";
  const int threads = lanes_.size();
  return text + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

Reason FusedBackend::supports(const Precision& precision) const {
  for (const DType dtype : {precision.working, precision.message, precision.accumulate}) {
    if (Reason reason = matrix_.supports(dtype)) return reason;
  }
  if (precision.accumulate != DType::f32) {
    return "kernels_fused: gradients accumulate in f32, not in " + std::string(name_of(precision.accumulate));
  }
  return {};
}

}  // namespace espalier::kernels_fused
