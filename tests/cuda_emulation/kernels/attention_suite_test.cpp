// The conformance suite of attention on the emulated kernels: as it is, and with problems cut into many small blocks of
// queries.
#include "espalier/testing/attention_suite.hpp"

#include <memory>
#include <vector>

#include "kernels/emulated_backend.hpp"

namespace espalier::testing {
namespace {

using kernels_fused::cuda::CudaAttention;

std::vector<KernelCase> cases(const char* name, CudaAttention::Limits limits) {
  return kernel_cases(name, [limits](ThreadPool&) { return std::make_unique<EmulatedBackend>(limits); });
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Emulated, AttentionSuite, ::testing::ValuesIn(cases("emulated", {})), case_name);
INSTANTIATE_TEST_SUITE_P(Blocks, AttentionSuite, ::testing::ValuesIn(cases("blocks", {32, 4096})), case_name);

}  // namespace espalier::testing
