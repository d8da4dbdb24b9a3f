// The quickstart's model, shrunk, through the CUDA backend under emulation and on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {

using Change = std::function<void(TrainerJob&)>;

/// @param change  what the case is about: optimizer, layout, dropout.
inline TrainerJob quickstart_job(const std::string& name, int steps, const Change& change) {
  TrainerJob job(name);
  job.set("plugins.search_path", "[\"" EMULATED_DIR "\", \"" LION_DIR "\", \"" ESPALIER_PLUGIN_DIR "\"]")
      .set("model.hidden", "48")
      .set("model.vocab_size", "264")
      .set("model.seq_length", "32")
      .set("train.train_iters", std::to_string(steps))
      .set("train.global_batch_size", "4")
      .set("train.micro_batch_size", "2")
      .set("train.lr", "2e-3")
      .set("train.min_lr", "1e-4")
      .set("train.clip_grad", "1.0")
      .set("backend.plugin", "\"kernels_fused\"");
  change(job);
  return job;
}

/// On the emulated GPU. The order of work, and that of blocks and threads in a kernel, follow from the seed.
inline TrainerJob& on_cuda(TrainerJob& job, int seed) {
  static const char* const kOrders[] = {"forward", "reverse", "random"};
  return job.set("backend.device", "\"cuda\"")
      .environment("ESPALIER_FAKE_CUDA_SEED=" + std::to_string(seed))
      .environment(std::string("ESPALIER_CUDA_EMULATION=races=off,order=") + kOrders[seed % 3]);
}

/// |a − b| <= tolerance · |a| for loss and gradient norm of every step; overflows are overflows in both.
inline void expect_near(const TrainerJob& cpu, const TrainerJob& cuda, double tolerance, const std::string& which) {
  const auto a = cpu.steps(), b = cuda.steps();
  ASSERT_EQ(a.size(), b.size()) << which;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (const char* key : {"lm loss", "grad norm"}) {
      const double want = number(a[i], key), got = number(b[i], key);
      if (!std::isfinite(want)) {  // a skipped step
        EXPECT_FALSE(std::isfinite(got)) << which << ", " << key << " of step " << i + 1;
        continue;
      }
      worst = std::max(worst, std::abs(got - want) / std::abs(want));
      EXPECT_NEAR(got, want, tolerance * std::abs(want)) << which << ", " << key << " of step " << i + 1;
    }
    EXPECT_EQ(a[i].at("skipped steps"), b[i].at("skipped steps")) << which << ", step " << i + 1;
  }
  ::testing::Test::RecordProperty(which + " worst", std::to_string(worst));
}

/// The CPU's run within the tolerance, and the same bits in `orders` orders.
inline void expect_cuda_as_cpu(const std::string& name, int steps, int orders, double tolerance, const Change& change) {
  TrainerJob cpu = quickstart_job(name + "_cpu", steps, change);
  cpu.expect(0, 300);
  TrainerJob first = quickstart_job(name + "_cuda_0", steps, change);
  on_cuda(first, 0).expect(0, 600);
  expect_near(cpu, first, tolerance, name);
  for (int seed = 1; seed < orders; ++seed) {
    TrainerJob other = quickstart_job(name + "_cuda_" + std::to_string(seed), steps, change);
    on_cuda(other, seed).expect(0, 600);
    EXPECT_EQ(difference_of_steps(first.steps(), other.steps(), 1, steps), "") << name << ", seed " << seed;
    EXPECT_EQ(difference_of_checkpoints(first.checkpoint(steps), other.checkpoint(steps)), "")
        << name << ", seed " << seed;
  }
}

inline Change optimizer(const std::string& name) {
  return [=](TrainerJob& job) { job.set("optimizer.plugin", "\"" + name + "\""); };
}

}  // namespace espalier::testing_support
