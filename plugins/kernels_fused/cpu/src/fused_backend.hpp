#pragma once

#include <limits>
#include <memory>

#include "espalier/config.hpp"
#include "espalier/host.hpp"
#include "kernels.hpp"

namespace espalier::kernels_fused {

inline constexpr OptionSpec kOptions[] = {
    {"instruction_set", OptionType::string, "\"auto\"",
     "caps what the kernels and oneDNN may use; auto: all that the machine offers",
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(),
     "auto|avx2|avx512|avx512_bf16|amx"},
};

/// The CPU provider: oneDNN's GEMM and own SIMD kernels, on the core's pool and the core's CPU device. Initial values
/// and the step's verdict are the reference's, so that both providers start from the same bits and decide alike.
class FusedBackend final : public Backend {
 public:
  FusedBackend(const ConfigView& config, HostContext& host);
  /// @param instruction_set  "auto", "avx2", "avx512", "avx512_bf16" or "amx".
  /// @throws DeviceError when the machine lacks it.
  FusedBackend(std::string_view instruction_set, ThreadPool& pool);

  std::string description() const override;
  Device& device() override { return *device_; }
  const KernelSet& kernels() override { return kernels_; }
  Reason supports(const Precision& precision) const override;
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override { return communicator; }

 private:
  InstructionSet set_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> reference_;
  Lanes lanes_;
  OneDnn onednn_;
  FusedMatrix matrix_;
  FusedAttention attention_;
  FusedNorm norm_;
  FusedElementwise elementwise_;
  FusedLoss loss_;
  FusedUpdate update_;
  KernelSet kernels_;
};

}  // namespace espalier::kernels_fused
