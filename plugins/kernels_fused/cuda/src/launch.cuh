#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include "check.hpp"
#include "compat.cuh"
#ifndef __CUDACC__
#include <tuple>

#include "espalier/error.hpp"
#endif

namespace espalier::kernels_fused::cuda {

/// Starts a kernel: launch("layernorm_forward", layernorm_forward<float>, grid, block, dynamic_shared_bytes, stream,
/// arguments...). Arguments convert to the kernel's parameter types. An empty grid is the caller's mistake.
/// @throws DeviceError naming the kernel when it cannot be started, or, with synchronous launches, when it fails.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments),
                "a kernel is launched with as many arguments as it has parameters");
#ifdef __CUDACC__
  constexpr std::size_t kWithoutAsking = 48 << 10;  // more dynamic shared memory must be allowed per kernel
  if (dynamic_shared_bytes > kWithoutAsking) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(dynamic_shared_bytes)),
          name);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamic_shared_bytes;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
  after_launch(stream, name);
#else
  std::tuple<std::remove_cv_t<Parameters>...> values(static_cast<Parameters>(arguments)...);
  try {
    ::cuda_emulation::launch(name, grid, block, dynamic_shared_bytes, stream,
                             [kernel, values] { std::apply(kernel, values); });
    if (synchronous_launches) ::cuda_emulation::wait(stream);
  } catch (const ::cuda_emulation::Error& error) {
    throw DeviceError(std::string("cuda: ") + error.what());
  }
#endif
}

}  // namespace espalier::kernels_fused::cuda
