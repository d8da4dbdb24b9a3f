// The conformance suites on a real GPU: of all kernel families, against oracles in FP64, and of communicators, over
// NCCL with one rank. Without a GPU all are skipped, and ctest says so. scripts/gpu_check.sh runs this program.
#include <memory>

#include "cuda_emulation/nccl/host_operands.hpp"
#include "espalier/error.hpp"
#include "espalier/testing/communicator_suite.hpp"
#include "espalier/testing/kernel_suite.hpp"
#include "fused_cuda_backend.hpp"
#include "nccl_communicator.hpp"

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

std::unique_ptr<espalier::Communicator> make_nccl() {
  using espalier::kernels_fused::cuda::CudaDevice;
  using espalier::kernels_fused::cuda::NcclCommunicator;
  auto device = std::make_shared<CudaDevice>(0);
  auto group = std::make_unique<NcclCommunicator>(*device, espalier::make_self_communicator("world"), true);
  return std::make_unique<espalier::testing_support::HostOperands>(std::move(device), std::move(group));
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

const CommunicatorMaker kNccl{"nccl", make_nccl, false};
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorSuite, ::testing::Values(kNccl));
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorTypes,
                         ::testing::Combine(::testing::Values(kNccl),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64,
                                                              DType::u8)));
}  // namespace espalier::testing
