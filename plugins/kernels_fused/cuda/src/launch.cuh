#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include "check.hpp"
#include "compat.cuh"
#include "stream.hpp"
#ifndef __CUDACC__
#include "espalier/error.hpp"
#endif

namespace espalier::kernels_fused::cuda {

/// Values of these types, one after another. Unlike a tuple it may be copied as bytes where its elements may.
template <class... Types>
struct Values;

template <>
struct Values<> {
  template <class Function, class... Before>
  void give(const Function& function, const Before&... before) const {
    function(before...);
  }
};

template <class First, class... Rest>
struct Values<First, Rest...> {
  First first;
  [[no_unique_address]] Values<Rest...> rest;

  Values(const First& a, const Rest&... b) : first(a), rest{b...} {}
  /// function(before..., the values...)
  template <class Function, class... Before>
  void give(const Function& function, const Before&... before) const {
    rest.give(function, before..., first);
  }
};

/// A kernel with all that it is started with, as bytes.
template <class... Parameters>
struct KernelLaunch {
  const char* name;
  void (*kernel)(Parameters...);
  dim3 grid, block;
  std::size_t dynamic_shared_bytes;
  Values<std::remove_cv_t<Parameters>...> values;

  void operator()(cudaStream_t stream) const {
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
    values.give([&](const auto&... value) { check(cudaLaunchKernelEx(&config, kernel, value...), name); });
    after_launch(stream, name);
#else
    try {
      ::cuda_emulation::launch(name, grid, block, dynamic_shared_bytes, stream,
                               [kernel = kernel, values = values] { values.give(kernel); });
      if (synchronous_launches) ::cuda_emulation::wait(stream);
    } catch (const ::cuda_emulation::Error& error) {
      throw DeviceError(std::string("cuda: ") + error.what());
    }
#endif
  }
};

/// Starts a kernel: launch("layernorm_forward", layernorm_forward<float>, grid, block, dynamic_shared_bytes, queue,
/// arguments...). Arguments convert to the kernel's parameter types. An empty grid is the caller's mistake.
/// @param name  must live as long as the program.
/// @throws DeviceError naming the kernel when it cannot be started, or, with synchronous launches, when it fails. Where
/// the queue keeps work back it is the call that sends it which throws.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
            const Queue& queue, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments),
                "a kernel is launched with as many arguments as it has parameters");
  queue.run(KernelLaunch<Parameters...>{
      name, kernel, grid, block, dynamic_shared_bytes, {static_cast<Parameters>(arguments)...}});
}

}  // namespace espalier::kernels_fused::cuda
