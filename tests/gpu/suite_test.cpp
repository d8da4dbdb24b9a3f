// The conformance suites on a real GPU: of all kernel families, against oracles in FP64, and of communicators, over
// NCCL with one rank. Without a GPU all are skipped, and ctest says so. scripts/gpu_check.sh runs this program.
#include <iostream>
#include <memory>
#include <string>

#include "cuda_emulation/nccl/host_operands.hpp"
#include "espalier/error.hpp"
#include "espalier/testing/communicator_suite.hpp"
#include "espalier/testing/kernel_suite.hpp"
#include "fused_cuda_backend.hpp"
#include "nccl_communicator.hpp"

namespace {

using espalier::kernels_fused::cuda::FusedCudaBackend;
using espalier::kernels_fused::cuda::Settings;

/// With attention of our own: cuDNN makes plans for each length anew, a second apiece, and the suite has hundreds.
std::unique_ptr<espalier::Backend> make_cuda(espalier::ThreadPool&) {
  Settings settings;
  settings.own_attention = true;
  return std::make_unique<FusedCudaBackend>(settings);
}

/// cuDNN's attention where it is built in; says which it is.
std::unique_ptr<espalier::Backend> make_with_any_attention(espalier::ThreadPool&) {
  return std::make_unique<FusedCudaBackend>(Settings{},
                                            [](const std::string& line) { std::cout << line << std::endl; });
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

class AnyAttention : public AttentionSuite {};

/// Head sizes of BLOOM, lengths on and off the borders of tiles.
TEST_P(AnyAttention, WholeSequences) {
  for (const std::int64_t n : {65, 128}) check({.batch = 2, .heads = 4, .head_dim = 64, .queries = n, .keys = n});
  check({.heads = 3, .head_dim = 80, .queries = 64, .keys = 64});
  check({.heads = 2, .head_dim = 128, .queries = 192, .keys = 192});
  check({.heads = 2, .head_dim = 64, .queries = 64, .keys = 64, .slopes = false});
}

INSTANTIATE_TEST_SUITE_P(Cuda, AnyAttention,
                         ::testing::ValuesIn(kernel_cases("any_attention", make_with_any_attention)), case_name);

const CommunicatorMaker kNccl{"nccl", make_nccl, false};
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorSuite, ::testing::Values(kNccl));
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorTypes,
                         ::testing::Combine(::testing::Values(kNccl),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64,
                                                              DType::u8)));

}  // namespace espalier::testing
