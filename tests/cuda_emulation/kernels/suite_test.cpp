// The conformance suites of the kernel families on the emulated kernels.
#include <memory>

#include "espalier/testing/elementwise_suite.hpp"
#include "espalier/testing/loss_suite.hpp"
#include "espalier/testing/norm_suite.hpp"
#include "espalier/testing/random_suite.hpp"
#include "espalier/testing/update_suite.hpp"
#include "kernels/emulated_backend.hpp"

namespace espalier::testing {
namespace {

std::unique_ptr<Backend> make_emulated(ThreadPool&) { return std::make_unique<EmulatedBackend>(); }

}  // namespace

INSTANTIATE_TEST_SUITE_P(Emulated, ElementwiseSuite, ::testing::ValuesIn(kernel_cases("emulated", make_emulated)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Emulated, LossSuite, ::testing::ValuesIn(kernel_cases("emulated", make_emulated)), case_name);
INSTANTIATE_TEST_SUITE_P(Emulated, NormSuite, ::testing::ValuesIn(kernel_cases("emulated", make_emulated)), case_name);
INSTANTIATE_TEST_SUITE_P(Emulated, RandomSuite, ::testing::ValuesIn(kernel_cases("emulated", make_emulated)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Emulated, UpdateSuite, ::testing::ValuesIn(kernel_cases("emulated", make_emulated)),
                         case_name);

}  // namespace espalier::testing
