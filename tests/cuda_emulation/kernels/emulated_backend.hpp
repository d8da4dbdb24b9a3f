#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention.hpp"
#include "elementwise.hpp"
#include "espalier/backend.hpp"
#include "kernels/plain_gemm.hpp"
#include "loss.hpp"
#include "norm.hpp"
#include "random.hpp"
#include "scratch.hpp"
#include "stream.hpp"
#include "update.hpp"

namespace espalier::testing {

/// Host memory whose lanes are CUDA streams: what is launched on them runs in the emulator at once.
class EmulatedDevice final : public Device {
 public:
  std::string_view name() const override { return "cuda emulation"; }
  bool host_accessible() const override { return false; }
  DeviceMemory reserve(std::size_t bytes, std::string_view purpose) override { return host_->reserve(bytes, purpose); }
  Stream& lane(Lane) override { return stream_; }
  void order(Stream&, Stream&) override {}
  void copy(const View& from, const View& to, Stream&) override { host_->copy(from, to, host_->lane(Lane::compute)); }
  void fill_zero(const View& view, Stream&) override { host_->fill_zero(view, host_->lane(Lane::compute)); }
  void wait(Stream&) override {}
  std::vector<MemoryUse> memory_use() const override { return host_->memory_use(); }

 protected:
  void release(void*, std::size_t) noexcept override {}

 private:
  std::unique_ptr<Device> host_ = make_cpu_device();
  kernels_fused::cuda::CudaStream stream_{nullptr};
};

/// The families with hand-written kernels, products by plain loops; the others are null.
class EmulatedBackend final : public Backend {
 public:
  explicit EmulatedBackend(kernels_fused::cuda::CudaAttention::Limits limits = {})
      : attention_(gemm_, scratch_, limits) {}

  std::string description() const override { return "cuda emulation"; }
  Device& device() override { return device_; }
  const KernelSet& kernels() override { return kernels_; }
  Reason supports(const Precision&) const override { return {}; }
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override { return communicator; }

 private:
  EmulatedDevice device_;
  kernels_fused::cuda::Scratch scratch_{device_};
  PlainGemm gemm_;
  kernels_fused::cuda::CudaAttention attention_;
  kernels_fused::cuda::CudaElementwise elementwise_{scratch_};
  kernels_fused::cuda::CudaLoss loss_;
  kernels_fused::cuda::CudaNorm norm_{scratch_};
  kernels_fused::cuda::CudaUpdate update_{gemm_, scratch_};
  kernels_fused::cuda::CudaRandom random_;
  KernelSet kernels_{.attention = &attention_,
                     .norm = &norm_,
                     .elementwise = &elementwise_,
                     .loss = &loss_,
                     .update = &update_,
                     .random = &random_};
};

}  // namespace espalier::testing
