// An optimizer of whole matrices (Unit::tensor) on matrices that are split over a tensor group, in whole runs of the
// trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 10;

struct MatrixLayout {
  int tensor, pipeline, data, stage;
};

/// The optimizer of whole matrices on these ranks. Vocabulary of 261: the last tensor rank's part of it is padded.
TrainerJob matrix_job(const std::string& name, const MatrixLayout& at) {
  TrainerJob job(name);
  job.set("plugins.search_path", "[\"" ESPALIER_PLUGIN_DIR "\", \"" DOUBLES_DIR "\"]");
  job.set("train.train_iters", std::to_string(kSteps)).set("model.vocab_size", "261");
  job.set("optimizer.plugin", "\"doubles\"").set("train.lr", "0.1");
  if (at.tensor * at.pipeline * at.data == 1) return job;
  job.world(at.tensor * at.pipeline * at.data).set("parallel.data.plugin", "\"parallel_zero\"");
  job.set("parallel.data.stage", std::to_string(at.stage));
  job.set("parallel.tensor.plugin", "\"parallel_tensor\"").set("parallel.tensor.size", std::to_string(at.tensor));
  job.set("parallel.pipeline.plugin", "\"parallel_pipeline\"")
      .set("parallel.pipeline.size", std::to_string(at.pipeline));
  return job;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || a.empty()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

// Matrices that are split over a tensor group: one owner puts them together, updates them and has their state.
TEST(Matrices, OverTensorDataAndPipeline) {
  TrainerJob one = matrix_job("split_one", {1, 1, 1, 0});
  one.expect(0);
  for (const MatrixLayout& at : {MatrixLayout{2, 2, 2, 3}, {2, 1, 2, 0}, {4, 1, 1, 1}}) {
    SCOPED_TRACE(testing::Message() << "tensor " << at.tensor << " pipeline " << at.pipeline << " data " << at.data
                                    << " stage " << at.stage);
    TrainerJob split = matrix_job("split_many", at);
    split.expect(0);
    EXPECT_NE(split.log().find("at the peak, each as computed"), std::string::npos) << split.log();
    const auto a = one.steps(), b = split.steps();
    ASSERT_EQ(b.size(), a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(number(b[i], "lm loss"), number(a[i], "lm loss"), 1e-5 * number(a[i], "lm loss")) << "step " << i + 1;
    }
    for (const char* parameter :
         {"word_embeddings.weight", "h.0.self_attention.query_key_value.weight", "h.1.mlp.dense_4h_to_h.weight"}) {
      const auto mean = [&](TrainerJob& job) { return read_state(job.checkpoint(kSteps), parameter, "mean"); };
      EXPECT_LT(largest_difference(mean(split), mean(one)), 1e-5) << parameter;
      EXPECT_EQ(read_state(split.checkpoint(kSteps), parameter, "updates"), std::vector<float>{kSteps}) << parameter;
    }
  }
}

// The state is in logical coordinates: any other layout goes on from it, and the same one to the bit.
TEST(Matrices, GoOnInAnotherLayout) {
  for (const std::string working : {"f32", "bf16"}) {
    const auto job_at = [&](const std::string& name, const MatrixLayout& at) {
      TrainerJob job = matrix_job(name, at);
      job.set("optimizer.working", "\"" + working + "\"");
      return job;
    };
    TrainerJob straight = job_at("goes_straight", {2, 1, 2, 1}), first = job_at("goes_on", {2, 1, 2, 1});
    straight.expect(0);
    first.set("train.exit_interval", "6").expect(75);
    std::vector<MatrixLayout> others = {{1, 1, 1, 0}};
    if (working == "bf16") others = {{2, 1, 2, 1}, {4, 1, 1, 3}};
    for (const MatrixLayout& next : others) {
      SCOPED_TRACE(testing::Message() << working << " tensor " << next.tensor << " data " << next.data << " stage "
                                      << next.stage);
      TrainerJob second = job_at("goes_then", next);
      second.set("checkpoint.load", "\"" + first.checkpoint(6).string() + "\"").expect(0);
      const auto a = straight.steps(), b = second.steps();
      ASSERT_EQ(b.size(), std::size_t{kSteps - 6});
      const double tolerance = working == "f32" ? 1e-5 : 5e-3;
      for (std::size_t i = 0; i < b.size(); ++i) {
        EXPECT_NEAR(number(b[i], "lm loss"), number(a[i + 6], "lm loss"), tolerance * number(a[i + 6], "lm loss"));
      }
      if (next.tensor == 2 && next.stage == 1) {
        EXPECT_EQ(difference_of_checkpoints(straight.checkpoint(kSteps), second.checkpoint(kSteps)), "");
      }
    }
  }
}

// A step that is left out gives back the weights that were there: a run that was stopped behind it, and has its weights
// from the true ones, goes on in the same way.
TEST(Matrices, StayAsTheyWereInASkippedStep) {
  const auto job_at = [&](const std::string& name) {
    TrainerJob job = matrix_job(name, {2, 1, 2, 1});
    job.set("plugins.search_path", "[\"" ESPALIER_PLUGIN_DIR "\", \"" DOUBLES_DIR "\", \"" FAULTS_DIR "\"]");
    job.set("backend.plugin", "\"faults\"").set("backend.fault", "\"nan\"").set("backend.steps", "[3]");
    job.set("optimizer.working", "\"bf16\"");
    return job;
  };
  TrainerJob straight = job_at("skips_straight"), stopped = job_at("skips_stopped");
  straight.expect(0);
  stopped.set("train.exit_interval", "3").expect(75);
  stopped.set("backend.fault", "\"\"").set("backend.steps", "[]");  // it counts from the start of a process
  stopped.set("train.exit_interval", "0").expect(0);
  EXPECT_EQ(number(stopped.steps().back(), "skipped steps"), 1);
  EXPECT_EQ(difference_of_steps(straight.steps(), stopped.steps(), 1, kSteps), "");
  EXPECT_EQ(difference_of_checkpoints(straight.checkpoint(kSteps), stopped.checkpoint(kSteps)), "");
}

}  // namespace
}  // namespace espalier::testing_support
