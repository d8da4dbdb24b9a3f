#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {

/// @param what  the call or kernel, for the message.
/// @throws DeviceError "<what>: <CUDA's text> (CUDA error <number>)".
inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw DeviceError("cuda: " + std::string(what) + ": " + cudaGetErrorString(status) + " (CUDA error " +
                      std::to_string(static_cast<int>(status)) + ")");
  }
}

/// Whether the host waits after every piece of work, so that a failure names it (option `synchronous`). Set once, when
/// the backend is made.
inline bool synchronous_launches = false;

/// After work was put on a stream.
inline void after_launch(cudaStream_t stream, const char* what) {
  if (synchronous_launches) check(cudaStreamSynchronize(stream), what);
}

}  // namespace espalier::kernels_fused::cuda
