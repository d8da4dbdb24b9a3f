// One job on the reference backend and on the remote device in several orders.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {

using Change = std::function<void(TrainerJob&)>;
/// Runs a job whose recipe is whole.
using Run = std::function<void(TrainerJob&)>;

constexpr int kRemoteSteps = 6;

/// Small, with what touches memory most: dropout, full recomputation, evaluation, a checkpoint, the replica guard.
inline TrainerJob remote_job(const std::string& name, const Change& change) {
  TrainerJob job(name);
  job.set("plugins.search_path", "[\"" ESPALIER_PLUGIN_DIR "\", \"" REMOTE_DIR "\", \"" DOUBLES_DIR "\"]")
      .set("train.train_iters", std::to_string(kRemoteSteps))
      .set("train.global_batch_size", "4")
      .set("train.micro_batch_size", "1")
      .set("train.lr", "1e-3")
      .set("model.seq_length", "12")
      .set("model.attention_dropout", "0.1")
      .set("model.hidden_dropout", "0.1")
      .set("eval.interval", "3")
      .set("eval.samples", "3")
      .set("checkpoint.save_interval", "3")
      .set("guard.interval", "2");
  change(job);
  return job;
}

inline void expect_equal(const TrainerJob& expected, const TrainerJob& found, const std::string& which) {
  EXPECT_EQ(difference_of_steps(expected.steps(), found.steps(), 1, kRemoteSteps), "") << which;
  EXPECT_EQ(difference_of_checkpoints(expected.checkpoint(kRemoteSteps), found.checkpoint(kRemoteSteps)), "") << which;
  const auto a = expected.records("evaluation"), b = found.records("evaluation");
  ASSERT_EQ(a.size(), b.size()) << which;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].contains("lm loss validation")) {
      EXPECT_EQ(a[i].at("lm loss validation"), b[i].at("lm loss validation")) << which;
    }
  }
}

/// @param orders  seeds 0 … orders - 1 of the queues.
inline void expect_remote_equal(const std::string& name, int orders, const Change& change, const Run& run) {
  TrainerJob reference = remote_job(name + "_reference", change);
  run(reference);
  for (int seed = 0; seed < orders; ++seed) {
    TrainerJob remote = remote_job(name + "_remote_" + std::to_string(seed), change);
    remote.set("backend.plugin", "\"remote\"").set("backend.seed", std::to_string(seed));
    run(remote);
    expect_equal(reference, remote, name + ", seed " + std::to_string(seed));
  }
}

inline void run_through(TrainerJob& job) { job.expect(0); }

/// Stops in the middle and goes on from the checkpoint.
inline void run_with_resume(TrainerJob& job) {
  job.set("train.exit_interval", "3").expect(75);
  job.set("train.exit_interval", "0").expect(0);
}

inline Change both(Change first, Change second) {
  return [=](TrainerJob& job) {
    first(job);
    second(job);
  };
}

inline Change zero(int stage, int world = 2) {
  return [=](TrainerJob& job) { job.ranks(world, stage); };
}
inline Change tensor(int size, bool sequence = false) {
  return [=](TrainerJob& job) {
    job.set("parallel.tensor.plugin", "\"parallel_tensor\"").set("parallel.tensor.size", std::to_string(size));
    if (sequence) job.set("parallel.tensor.sequence_parallel", "true");
  };
}
inline Change pipeline(const std::string& schedule, int size = 2) {
  return [=](TrainerJob& job) {
    job.set("parallel.pipeline.plugin", "\"parallel_pipeline\"")
        .set("parallel.pipeline.size", std::to_string(size))
        .set("parallel.pipeline.schedule", "\"" + schedule + "\"");
  };
}
inline Change key(std::string name, std::string value) {
  return [=](TrainerJob& job) { job.set(name, value); };
}

}  // namespace espalier::testing_support
