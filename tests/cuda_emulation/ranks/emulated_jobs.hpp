// Whole trainings of several ranks through the GPU backend on fake GPUs: within tolerance of the CPU's, and the same
// bits in whatever order the device does its work.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {

using Change = std::function<void(TrainerJob&)>;

inline TrainerJob job_of(const std::string& name, const Change& change, int steps) {
  TrainerJob job(name);
  job.set("train.train_iters", std::to_string(steps))
      .set("train.global_batch_size", "4")
      .set("train.micro_batch_size", "1")
      .set("train.lr", "1e-3")
      .set("model.seq_length", "12")
      .set("eval.interval", "10")
      .set("eval.samples", "2")
      .set("checkpoint.save_interval", std::to_string(steps));
  change(job);
  return job;
}

inline TrainerJob emulated(const std::string& name, const Change& change, int steps, int seed) {
  TrainerJob job = job_of(name + "_" + std::to_string(seed), change, steps);
  job.set("plugins.search_path", "[\"" EMULATED_DIR "\", \"" ESPALIER_PLUGIN_DIR "\"]")
      .set("backend.plugin", "\"kernels_fused\"")
      .set("backend.device", "\"cuda\"")
      .environment("ESPALIER_FAKE_CUDA_DEVICES=4")
      .environment("ESPALIER_FAKE_CUDA_SEED=" + std::to_string(seed));
  return job;
}

/// @param relative  of losses; norms may differ ten times as much.
inline void expect_like_the_cpu(const std::string& name, const Change& change, double relative, int steps = 20,
                                int orders = 3) {
  TrainerJob cpu = job_of(name + "_cpu", change, steps);
  cpu.expect(0, 120);
  TrainerJob first = emulated(name, change, steps, 0);
  first.expect(0, 240);
  const auto a = cpu.steps(), b = first.steps();
  ASSERT_EQ(a.size(), static_cast<std::size_t>(steps));
  ASSERT_EQ(b.size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double loss = number(a[i], "lm loss"), norm = number(a[i], "grad norm");
    EXPECT_NEAR(number(b[i], "lm loss"), loss, relative * loss) << name << ", step " << i + 1;
    EXPECT_NEAR(number(b[i], "grad norm"), norm, 10 * relative * norm) << name << ", step " << i + 1;
  }
  for (int seed = 1; seed < orders; ++seed) {
    TrainerJob other = emulated(name, change, steps, seed);
    other.expect(0, 240);
    EXPECT_EQ(difference_of_steps(b, other.steps(), 1, steps), "") << name << ", seed " << seed;
    EXPECT_EQ(difference_of_checkpoints(first.checkpoint(steps), other.checkpoint(steps)), "")
        << name << ", seed " << seed;
  }
}

inline Change zero(int stage, int world = 2) {
  return [=](TrainerJob& job) { job.ranks(world, stage); };
}
inline Change split(const std::string& strategy, const Change& rest) {
  return [=](TrainerJob& job) {
    rest(job);
    job.set("parallel." + strategy + ".plugin", "\"parallel_" + strategy + "\"")
        .set("parallel." + strategy + ".size", "2");
  };
}
inline Change with_optimizer(const std::string& optimizer, const Change& rest) {
  return [=](TrainerJob& job) {
    rest(job);
    job.set("optimizer.plugin", "\"" + optimizer + "\"");
  };
}

}  // namespace espalier::testing_support
