#include <gmock/gmock.h>
#include <unistd.h>

#include "runs.hpp"

namespace espalier::testing_support {
namespace {

TEST(EmulatedCuda, AFewStepsAreThoseOfTheCpu) {
  expect_cuda_as_cpu("cuda_fast", 3, 2, kHalf, [](TrainerJob&) {});
}

TEST(EmulatedCuda, AFaultInAKernelIsNamed) {
  for (const bool synchronous : {false, true}) {
    TrainerJob job = quickstart_job("cuda_fault", 2, optimizer("optim_fp32"));
    on_cuda(job, 0)
        .set("backend.synchronous", synchronous ? "true" : "false")
        .environment("ESPALIER_FAKE_CUDA_FAULT=matmul");
    const Ended ended = job.expect(6);
    EXPECT_THAT(ended.output, ::testing::HasSubstr("unspecified launch failure"));
    if (synchronous) {
      EXPECT_THAT(ended.output, ::testing::HasSubstr("cuda: matmul ["));
    }
  }
}

TEST(EmulatedCuda, NoDeviceIsSaidOnceWithItsExitCode) {
  TrainerJob job = quickstart_job("cuda_none", 2, optimizer("optim_bf16"));
  on_cuda(job, 0).environment("ESPALIER_FAKE_CUDA_DEVICES=0");
  EXPECT_THAT(job.expect(6).output, ::testing::HasSubstr("no CUDA device: CUDA driver version is insufficient"));
}

/// The plugin that users have, with NVIDIA's libraries.
TEST(RealCuda, NoDeviceIsSaidOnceWithItsExitCode) {
  if (!std::filesystem::exists(ESPALIER_PLUGIN_DIR "/libkernels_fused_cuda.so")) GTEST_SKIP() << "built without nvcc";
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a GPU";
  TrainerJob job = quickstart_job("cuda_real", 2, optimizer("optim_bf16"));
  job.set("plugins.search_path", "[\"" ESPALIER_PLUGIN_DIR "\"]").set("backend.device", "\"cuda\"");
  const std::string output = job.expect(6).output;
  EXPECT_THAT(output, ::testing::HasSubstr("no CUDA device: "));
  EXPECT_EQ(output.find("no CUDA device"), output.rfind("no CUDA device")) << output;
}

std::string doctor(const std::vector<std::string>& environment) {
  const auto output = std::filesystem::temp_directory_path() / ("espalier_doctor_" + std::to_string(::getpid()));
  const Ended ended = Process({TRAINER_EXE, "doctor"}, environment, output).wait(120);
  std::filesystem::remove(output);
  EXPECT_EQ(ended.code, 0) << ended.output;
  return ended.output;
}

TEST(Doctor, ListsDevicesWithVersionsAndSpeeds) {
  const std::string two = doctor({"ESPALIER_PLUGIN_PATH=" EMULATED_DIR, "ESPALIER_FAKE_CUDA_DEVICES=2"});
  EXPECT_THAT(
      two, ::testing::ContainsRegex("device +kernels_fused_cuda: Emulated GPU .cuda:0 of 2, .* "
                                    "cuBLASLt 13[.][0-9.]+, NCCL 2[.][0-9.]+; copies of 64 MiB: [0-9]+ GB/s within"));
  EXPECT_THAT(two, ::testing::ContainsRegex("device +kernels_fused_cuda: Emulated GPU .cuda:1 of 2"));
  const std::string none = doctor({"ESPALIER_PLUGIN_PATH=" EMULATED_DIR, "ESPALIER_FAKE_CUDA_DEVICES=0"});
  EXPECT_THAT(none, ::testing::ContainsRegex("device .*no CUDA device: CUDA driver version is insufficient"));
}

}  // namespace
}  // namespace espalier::testing_support
