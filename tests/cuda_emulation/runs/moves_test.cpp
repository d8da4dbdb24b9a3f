// What was trained on one device goes on, speaks and is measured on the other; no family comes from another device.
#include <gmock/gmock.h>

#include "runs.hpp"

namespace espalier::testing_support {
namespace {

using ::testing::HasSubstr;

constexpr double kHalf = 5e-4;

void twelve_heads(TrainerJob& job) {
  job.set("optimizer.plugin", "\"optim_bf16\"").set("model.heads", "12").set("checkpoint.save_interval", "2");
}

/// Four steps, the last two on the other device.
TrainerJob moved(const std::string& name, bool to_cuda) {
  TrainerJob job = quickstart_job(name, 4, twelve_heads);
  job.set("train.exit_interval", "2");
  if (!to_cuda) on_cuda(job, 0);
  job.expect(75);
  job.set("train.exit_interval", "0");
  if (to_cuda)
    on_cuda(job, 0);
  else
    job.set("backend.device", "\"cpu\"");
  job.expect(0);
  return job;
}

TEST(EmulatedCudaMoves, ARunGoesOnOnTheOtherDevice) {
  TrainerJob cpu = quickstart_job("cuda_moves_cpu", 4, twelve_heads);
  cpu.expect(0);
  expect_near(cpu, moved("cuda_moves_to", true), kHalf, "from CPU to GPU");
  expect_near(cpu, moved("cuda_moves_from", false), kHalf, "from GPU to CPU");
}

TEST(EmulatedCudaMoves, AGpuIsNotNeededToUseWhatItTrained) {
  TrainerJob job = quickstart_job("cuda_moves_commands", 2, twelve_heads);
  on_cuda(job, 0).expect(0);
  const std::string checkpoint = job.checkpoint(2).string();
  const auto output = [&](std::vector<std::string> command, const char* devices, int code) {
    command.insert(command.begin(), TRAINER_EXE);
    const Ended ended = run_command(command, {devices}, job.folder() / "command.txt", 60);
    EXPECT_EQ(ended.code, code) << ended.output;
    return ended.output.substr(0, ended.output.find("generate: "));  // what follows is how long it took
  };
  for (std::vector<std::string> command : {std::vector<std::string>{"generate", "--checkpoint", checkpoint, "--prompt",
                                                                    "The file", "--greedy", "--tokens", "8"},
                                           {"eval", "--checkpoint", checkpoint, "--set", "eval.samples=2"}}) {
    const std::string there = output(command, "ESPALIER_FAKE_CUDA_DEVICES=1", 0);
    EXPECT_THAT(output(command, "ESPALIER_FAKE_CUDA_DEVICES=0", 6), HasSubstr("no CUDA device: "));
    command.insert(command.end(), {"--set", "backend.device=cpu"});
    const std::string here = output(command, "ESPALIER_FAKE_CUDA_DEVICES=0", 0);
    if (command.front() == "generate") {
      EXPECT_EQ(here, there);
    }
    EXPECT_GT(here.size(), 10u);
  }
}

TEST(EmulatedCudaMoves, AFamilyOfTheOtherDeviceIsRefused) {
  const auto refusal = [](const char* device, const char* provider) {
    TrainerJob job = quickstart_job("cuda_moves_family", 2, twelve_heads);
    return job.set("backend.device", device)
        .set("backend.overrides", std::string("{norm = \"") + provider + "\"}")
        .expect(2)
        .output;
  };
  EXPECT_THAT(refusal("\"cuda\"", "kernels_fused"), HasSubstr("backend.overrides.norm: a provider for the CPU cannot"));
  EXPECT_THAT(refusal("\"cuda\"", "reference"), HasSubstr("backend.overrides.norm: a provider for the CPU cannot"));
  EXPECT_THAT(refusal("\"cpu\"", "kernels_fused_cuda"), HasSubstr("works on memory of its own"));
}

}  // namespace
}  // namespace espalier::testing_support
