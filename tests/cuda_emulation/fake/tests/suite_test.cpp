#include "espalier/testing/kernel_suite.hpp"
#include "fused_cuda_backend.hpp"

namespace espalier::testing {

inline std::unique_ptr<Backend> emulated_cuda(ThreadPool&) {
  return std::make_unique<kernels_fused::cuda::FusedCudaBackend>(kernels_fused::cuda::Settings{});
}

}  // namespace espalier::testing

ESPALIER_INSTANTIATE_KERNEL_SUITE(EmulatedCuda,
                                  espalier::testing::kernel_cases("cuda", espalier::testing::emulated_cuda));
