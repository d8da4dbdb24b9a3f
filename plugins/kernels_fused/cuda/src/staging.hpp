#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

#include "espalier/tensor.hpp"

namespace espalier::kernels_fused::cuda {

/// Queues a copy between any two places.
void copy_async(const View& from, const View& to, cudaStream_t stream);

/// Pinned host memory that copies to and from pageable memory pass through. CUDA's own copies from pageable memory may
/// wait for the stream, and those to it do; here the host goes on in both directions: a source is read when the call is
/// made, a target is written by a host function in the stream, so that whatever waits for the stream sees it.
class Staging {
 public:
  Staging();
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// False, with nothing done, when the copy does not fit or every slot is in flight; the caller copies directly then.
  bool to_device(const View& host, const View& device, cudaStream_t stream);
  bool to_host(const View& device, const View& host, cudaStream_t stream);

 private:
  static constexpr std::size_t kSlots = 8;
  static constexpr std::size_t kSlotBytes = std::size_t{2} << 20;

  struct Slot {
    std::byte* data = nullptr;
    cudaEvent_t passed = nullptr;  ///< behind the last work that used the slot
    View target;                   ///< of a copy to the host
  };

  Slot* free_slot(std::size_t bytes);
  static void CUDART_CB unpack(void* slot);

  std::byte* memory_ = nullptr;
  std::array<Slot, kSlots> slots_{};
};

}  // namespace espalier::kernels_fused::cuda
