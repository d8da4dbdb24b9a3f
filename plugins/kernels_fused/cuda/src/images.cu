#include "images.hpp"

#include "compat.cuh"

namespace espalier::kernels_fused::cuda {
namespace {

#ifdef __CUDA_ARCH_LIST__
constexpr int kCompiledFor[] = {__CUDA_ARCH_LIST__};
#else
constexpr int kCompiledFor[] = {800};  // what the emulator's limits are those of
#endif

__global__ void nothing() {}

}  // namespace

const void* any_kernel() { return reinterpret_cast<const void*>(&nothing); }

std::string compiled_for() {
  std::string text;
  for (const int capability : kCompiledFor) {
    if (!text.empty()) text += ", ";
    text += std::to_string(capability / 100) + "." + std::to_string(capability / 10 % 10);
  }
  return text;
}

}  // namespace espalier::kernels_fused::cuda
