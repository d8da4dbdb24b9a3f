#include <gtest/gtest.h>

#include "workload.hpp"

namespace espalier::kernels_fused {
namespace {

class Threads : public ::testing::TestWithParam<DType> {};

TEST_P(Threads, TheirNumberChangesNoBit) {
  std::vector<std::byte> first;
  for (const int threads : {1, 2, 3}) {
    Workload workload(threads, GetParam());
    workload.run();
    workload.run();
    const std::vector<std::byte> all = workload.bytes();
    if (threads == 1) first = all;
    EXPECT_TRUE(all == first) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, Threads, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

}  // namespace
}  // namespace espalier::kernels_fused
