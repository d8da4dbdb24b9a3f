// The conformance suites of all kernel families on a real GPU: every kernel against oracles in FP64. Without a GPU all
// are skipped, and ctest says so. scripts/gpu_check.sh runs this program.
#include <memory>

#include "espalier/error.hpp"
#include "espalier/testing/kernel_suite.hpp"
#include "fused_cuda_backend.hpp"

namespace {

using espalier::kernels_fused::cuda::FusedCudaBackend;
using espalier::kernels_fused::cuda::Settings;

std::unique_ptr<espalier::Backend> make_cuda(espalier::ThreadPool&) {
  return std::make_unique<FusedCudaBackend>(Settings{});
}

/// make_cuda takes cuDNN's attention where it is built in.
std::unique_ptr<espalier::Backend> make_with_own_attention(espalier::ThreadPool&) {
  Settings settings;
  settings.own_attention = true;
  return std::make_unique<FusedCudaBackend>(settings);
}

/// Asks for the device once, not in each of the tests.
class NeedsGpu final : public testing::Environment {
 public:
  void SetUp() override {
    try {
      FusedCudaBackend backend{Settings{}};
      std::cout << backend.description() << std::endl;
    } catch (const espalier::DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

[[maybe_unused]] testing::Environment* const needs_gpu = testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace

ESPALIER_INSTANTIATE_KERNEL_SUITE(Cuda, espalier::testing::kernel_cases("cuda", make_cuda));

namespace espalier::testing {
INSTANTIATE_TEST_SUITE_P(CudaOwn, AttentionSuite,
                         ::testing::ValuesIn(kernel_cases("own_attention", make_with_own_attention)), case_name);
}
