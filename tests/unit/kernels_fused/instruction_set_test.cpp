#include "instruction_set.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "espalier/error.hpp"
#include "espalier/threads.hpp"
#include "fused_backend.hpp"

namespace espalier::kernels_fused {
namespace {

using ::testing::HasSubstr;

TEST(InstructionSet, AutoIsTheBestAndLowerOnesMayBeAsked) {
  const InstructionSet best = detect_instruction_set();
  EXPECT_EQ(choose_instruction_set("auto"), best);
  EXPECT_EQ(choose_instruction_set("avx2"), InstructionSet::avx2);
  if (best >= InstructionSet::avx512) {
    EXPECT_EQ(choose_instruction_set("avx512"), InstructionSet::avx512);
  }
}

TEST(InstructionSet, MoreThanTheMachineHasIsRefused) {
  const InstructionSet best = detect_instruction_set();
  for (const auto& [name, set] :
       {std::pair{"avx512", InstructionSet::avx512}, std::pair{"avx512_bf16", InstructionSet::avx512_bf16},
        std::pair{"amx", InstructionSet::amx}}) {
    if (set <= best) continue;
    try {
      choose_instruction_set(name);
      ADD_FAILURE() << name << " was taken";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("\"") + name + "\""));
      EXPECT_THAT(error.what(), HasSubstr(std::string(title(best)) + " at most"));
    }
  }
}

TEST(InstructionSet, UnknownNameIsRefused) { EXPECT_THROW(choose_instruction_set("sse2"), DeviceError); }

TEST(InstructionSet, EachHasKernelsOfItsOwn) {
  EXPECT_NE(simd_table(InstructionSet::avx2).norm.forward, simd_table(InstructionSet::avx512).norm.forward);
  EXPECT_EQ(simd_table(InstructionSet::amx).norm.forward, simd_table(InstructionSet::avx512).norm.forward);
}

TEST(InstructionSet, DescriptionNamesTheChoice) {
  const auto pool = make_thread_pool(1);
  const FusedBackend backend("auto", *pool);
  EXPECT_THAT(backend.description(), HasSubstr(std::string(title(detect_instruction_set()))));
  EXPECT_THAT(backend.description(), HasSubstr("oneDNN " + std::string(onednn_version())));
}

TEST(InstructionSet, OneCapAProcess) {
  const auto pool = make_thread_pool(1);
  const FusedBackend first("auto", *pool);
  if (detect_instruction_set() == InstructionSet::avx2) GTEST_SKIP() << "this machine has one set only";
  EXPECT_THROW(FusedBackend("avx2", *pool), DeviceError);
}

}  // namespace
}  // namespace espalier::kernels_fused
