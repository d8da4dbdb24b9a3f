#pragma once

#include <cuda_runtime_api.h>

#include "espalier/device.hpp"
#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {

/// A CUDA stream, not owned.
class CudaStream final : public Stream {
 public:
  explicit CudaStream(cudaStream_t handle) : handle_(handle) {}
  cudaStream_t handle() const { return handle_; }

 private:
  cudaStream_t handle_;
};

/// The CUDA stream behind a lane of the CUDA device.
inline cudaStream_t handle(Stream& stream) {
  auto* const cuda = dynamic_cast<CudaStream*>(&stream);
  ESPALIER_ASSERT(cuda != nullptr);
  return cuda->handle();
}

}  // namespace espalier::kernels_fused::cuda
