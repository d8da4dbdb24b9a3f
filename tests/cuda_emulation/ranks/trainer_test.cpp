// What a trainer does besides plain steps, on two emulated GPUs: other layouts after a resume, gradients that are not
// finite, text, measurements, numerics.
#include <gmock/gmock.h>

#include "cuda_emulation/runs/runs.hpp"

namespace espalier::testing_support {
namespace {

using ::testing::HasSubstr;

const Change fp32 = optimizer("optim_fp32");
const Change one_rank = zero(1, 1);

/// Trained with ZeRO 2, then over a tensor group, then on one GPU, then over a pipeline: as one CPU trains without a
/// stop.
TEST(EmulatedTrainer, GoesOnInAnotherLayout) {
  constexpr int kSteps = 4;
  TrainerJob cpu = quickstart_job("cuda_layouts_cpu", kSteps, both(one_rank, fp32));
  cpu.expect(0, 120);
  TrainerJob job = quickstart_job("cuda_layouts", kSteps, fp32);
  on_cuda(job, 1).set("train.exit_interval", "1");
  const std::vector<Change> layouts = {zero(2), both(zero(1), split("tensor")), zero(1, 1),
                                       both(zero(1), split("pipeline"))};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    for (const std::string strategy : {"tensor", "pipeline"}) {
      job.set("parallel." + strategy + ".plugin", "\"none\"").set("parallel." + strategy + ".size", "1");
    }
    layouts[i](job);
    job.expect(i + 1 < layouts.size() ? 75 : 0, 120);
  }
  const auto a = cpu.steps(), b = job.steps();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(number(b[i], "lm loss"), number(a[i], "lm loss"), kFp32 * number(a[i], "lm loss")) << i;
    EXPECT_NEAR(number(b[i], "grad norm"), number(a[i], "grad norm"), kFp32 * number(a[i], "grad norm")) << i;
  }
}

/// Under a fixed loss scale that is too large for FP16 no step has a finite gradient. The policies do what they do on
/// the CPU, on both ranks.
TEST(EmulatedTrainer, GradientsThatAreNotFinite) {
  const Change broken = both(optimizer("optim_fp16"), key("optimizer.loss_scale", "1e12"));
  for (const int ranks : {1, 2}) {
    const auto ends = [&](const std::string& name, const Change& policy, bool cuda, int code) {
      TrainerJob job = quickstart_job("cuda_nan_" + name, 5, both(zero(2, ranks), both(broken, policy)));
      if (cuda) on_cuda(job, 1);
      const std::string output = job.expect(code, 120).output;
      std::string told;  // the lines that name a parameter, which are the same on both devices
      std::istringstream lines(output);
      for (std::string line; std::getline(lines, line);) {
        if (line.find("not finite") != std::string::npos || line.find("in a row") != std::string::npos)
          told += line + "\n";
      }
      for (const Json& step : job.steps()) {
        told += step.at("skipped steps").dump() + " " + step.at("nan steps").dump() + " " +
                step.at("applied steps").dump() + "\n";
      }
      return told;
    };
    const std::string skipped = ends("skip", key("train.max_skipped", "0"), false, 0);
    EXPECT_THAT(skipped, HasSubstr("5 5 0\n"));
    EXPECT_EQ(ends("skip", key("train.max_skipped", "0"), true, 0), skipped);
    const std::string row = ends("row", key("train.max_skipped", "2"), false, 7);
    EXPECT_THAT(row, HasSubstr("3 steps in a row were skipped"));
    EXPECT_EQ(ends("row", key("train.max_skipped", "2"), true, 7), row);
    const std::string stop = ends("stop", key("train.nan_policy", "\"stop\""), false, 7);
    EXPECT_THAT(stop, HasSubstr("step 1"));
    EXPECT_EQ(ends("stop", key("train.nan_policy", "\"stop\""), true, 7), stop);
  }
}

std::vector<std::string> with_sets(std::vector<std::string> command, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
  return command;
}

std::string run_on_two(std::vector<std::string> command, const TrainerJob& job, const std::string& device) {
  command.insert(command.begin(), {ESPALIER_MPIEXEC, "-n", "2", TRAINER_EXE});
  command.insert(command.end(), {"--set", "backend.device=" + device});
  const Ended ended = run_command(command, {"ESPALIER_FAKE_CUDA_DEVICES=2", "ESPALIER_CUDA_EMULATION=races=off"},
                                  job.folder() / "command.txt", 120);
  EXPECT_EQ(ended.code, 0) << ended.output;
  return ended.output.substr(0, ended.output.find("generate: "));  // what follows is how long it took
}

const std::vector<std::vector<std::string>> kHalves = {
    {"parallel.tensor.plugin=parallel_tensor", "parallel.tensor.size=2", "parallel.data.plugin=parallel_zero"},
    {"parallel.pipeline.plugin=parallel_pipeline", "parallel.pipeline.size=2", "parallel.data.plugin=parallel_zero"}};

TEST(EmulatedTrainer, SpeaksAndMeasuresInHalves) {
  TrainerJob job = quickstart_job("cuda_halves", 3, both(one_rank, fp32));
  job.expect(0, 120);
  const std::string checkpoint = job.checkpoint(3).string();
  const std::filesystem::path text = job.folder() / "text.txt";
  std::ofstream(text) << "some text to evaluate on, of a few sequences\n";
  for (const auto& layout : kHalves) {
    const auto generate = with_sets(
        {"generate", "--checkpoint", checkpoint, "--prompt", "The", "--prompt", "if [", "--greedy", "--tokens", "6"},
        layout);
    const std::string said = run_on_two(generate, job, "cpu");
    EXPECT_GT(said.size(), 20u);
    EXPECT_EQ(run_on_two(generate, job, "cuda"), said);
    // Four digits of the loss are printed.
    const auto eval = with_sets({"eval", "--checkpoint", checkpoint, "--data", text.string()}, layout);
    const std::string measured = run_on_two(eval, job, "cpu");
    EXPECT_GT(measured.size(), 20u);
    EXPECT_EQ(run_on_two(eval, job, "cuda"), measured);
  }
}

/// Logits, loss and gradients of a BLOOM of Hugging Face, against PyTorch's.
TEST(EmulatedTrainer, NumericsAreTheTruth) {
  const std::string model = ESPALIER_FIXTURES_DIR "/model/tiny_b";
  TrainerJob job = quickstart_job("cuda_numerics", 2, both(one_rank, fp32));
  on_cuda(job, 1).expect(0, 120);  // for its recipe
  const std::vector<std::string> command = {"numerics",
                                            "--model",
                                            model + "/hf",
                                            "--batch",
                                            model + "/fwd_bwd.safetensors",
                                            "--recipe",
                                            job.recipe().string(),
                                            "--out",
                                            (job.folder() / "out.safetensors").string(),
                                            "--compare",
                                            model + "/fwd_bwd.safetensors",
                                            "--tolerance",
                                            "5e-5"};
  EXPECT_THAT(run_on_two(command, job, "cuda"), HasSubstr("grad.h.0.mlp.dense_h_to_4h.weight"));
  for (const auto& layout : kHalves) {
    EXPECT_THAT(run_on_two(with_sets(command, layout), job, "cuda"), HasSubstr("logits"));
  }
}

}  // namespace
}  // namespace espalier::testing_support
