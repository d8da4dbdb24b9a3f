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

/// A group of one through NCCL: the same bits.
TEST(EmulatedCuda, NcclWithOneRankChangesNothing) {
  TrainerJob without = quickstart_job("cuda_no_nccl", 2, zero(2, 1));
  on_cuda(without, 0).expect(0);
  TrainerJob with = quickstart_job("cuda_always_nccl", 2, zero(2, 1));
  on_cuda(with, 0).set("backend.nccl", "\"always\"");
  EXPECT_THAT(with.expect(0).output, ::testing::HasSubstr("for groups of one, too"));
  expect_equal_runs(without, with, 2, "nccl = \"always\"");
}

/// On every rank the same, in one line, and nothing is left behind.
TEST(EmulatedCuda, NoDeviceIsSaidOnceWithItsExitCode) {
  for (const int ranks : {1, 2}) {
    TrainerJob job = quickstart_job("cuda_none", 2, zero(1, ranks));
    on_cuda(job, 0).environment("ESPALIER_FAKE_CUDA_DEVICES=0");
    const std::string output = job.expect(6).output;
    EXPECT_EQ(count_of(output, "no CUDA device: CUDA driver version is insufficient"), 1) << output;
    EXPECT_FALSE(std::filesystem::exists(job.run_dir()));
  }
}

/// More ranks on a host than it has GPUs: whether every rank sees all of them, or (as under some launchers) one only.
TEST(EmulatedCuda, TwoRanksOnOneGpuAreToldSo) {
  for (const int devices : {1, 2}) {
    TrainerJob job = quickstart_job("cuda_crowded", 2, zero(1, devices + 1));
    job.set("train.global_batch_size", std::to_string(2 * (devices + 1))).set("train.train_samples", "12");
    on_cuda(job, 0).environment("ESPALIER_FAKE_CUDA_DEVICES=" + std::to_string(devices));
    const std::string output = job.expect(6).output;
    EXPECT_EQ(count_of(output, "at most one rank a GPU"), 1) << output;
    EXPECT_FALSE(std::filesystem::exists(job.run_dir()));
  }
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
      two, ::testing::ContainsRegex(
               "device +kernels_fused_cuda: Emulated GPU .cuda:0 of 2, .* "
               "cuBLASLt 13[.][0-9.]+, NCCL 2[.][0-9.]+; copies of 64 MiB: [0-9.]+ GB/s within the device .*, [0-9.]+ "
               "GB/s from pinned host memory, [0-9.]+ GB/s to it, [0-9.]+ and [0-9.]+ GB/s from and to other"));
  EXPECT_THAT(two, ::testing::ContainsRegex("device +kernels_fused_cuda: Emulated GPU .cuda:1 of 2"));
  const std::string none = doctor({"ESPALIER_PLUGIN_PATH=" EMULATED_DIR, "ESPALIER_FAKE_CUDA_DEVICES=0"});
  EXPECT_THAT(none, ::testing::ContainsRegex("device .*no CUDA device: CUDA driver version is insufficient"));
}

}  // namespace
}  // namespace espalier::testing_support
