#include "espalier/testing/communicator_suite.hpp"

namespace espalier::testing {
namespace {

const CommunicatorMaker kSelf{"self", [] { return make_self_communicator("alone"); }};

INSTANTIATE_TEST_SUITE_P(Self, CommunicatorSuite, ::testing::Values(kSelf));
INSTANTIATE_TEST_SUITE_P(Self, CommunicatorTypes,
                         ::testing::Combine(::testing::Values(kSelf),
                                            ::testing::Values(DType::f32, DType::bf16, DType::i64)));

TEST(SelfCommunicatorDeathTest, AbortPrintsOnceAndExitsWithTheCode) {
  EXPECT_EXIT(make_self_communicator("alone")->abort(42, "the reason"), ::testing::ExitedWithCode(42),
              "^the reason\n$");
}

}  // namespace
}  // namespace espalier::testing
