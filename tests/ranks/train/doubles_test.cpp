// A second implementation of every strategy fits without a change to core or app: the real trainer runs each of them on
// two ranks and loses what one rank does.
#include <gtest/gtest.h>

#include <cmath>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

constexpr int kSteps = 10;

TrainerJob job_of(const std::string& name) {
  TrainerJob job(name);
  job.set("plugins.search_path", "[\"" ESPALIER_PLUGIN_DIR "\", \"" DOUBLES_DIR "\"]").set("train.lr", "1e-3");
  job.set("train.train_iters", std::to_string(kSteps))
      .set("model.vocab_size", "261")
      .set("eval.interval", "4")
      .set("eval.samples", "5");
  return job;
}

/// A data group of one: the built-in strategy is for a world of one.
TrainerJob& with_zero(TrainerJob& job) {
  return job.world(2).set("parallel.data.plugin", "\"parallel_zero\"").set("parallel.data.stage", "1");
}

TrainerJob& with_pipeline(TrainerJob& job) {
  return with_zero(job).set("parallel.pipeline.plugin", "\"doubles\"").set("parallel.pipeline.size", "2");
}

TrainerJob& with_tensor(TrainerJob& job) {
  return with_zero(job).set("parallel.tensor.plugin", "\"doubles\"").set("parallel.tensor.size", "2");
}

void expect_losses(TrainerJob& one, TrainerJob& two, bool norms = true) {
  one.expect(0);
  two.expect(0);
  const auto a = one.steps(), b = two.steps();
  ASSERT_EQ(a.size(), static_cast<std::size_t>(kSteps));
  ASSERT_EQ(b.size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double loss = number(a[i], "lm loss"), norm = number(a[i], "grad norm");
    EXPECT_NEAR(number(b[i], "lm loss"), loss, 1e-5 * loss) << "step " << i + 1;
    if (norms) {
      EXPECT_NEAR(number(b[i], "grad norm"), norm, 1e-4 * norm) << "step " << i + 1;
    }
  }
  EXPECT_LT(number(a.back(), "lm loss"), number(a.front(), "lm loss"));
  std::vector<double> evaluations[2];
  for (int run = 0; run < 2; ++run) {
    for (const Json& record : (run == 0 ? one : two).records("evaluation")) {
      if (record.contains("lm loss validation")) evaluations[run].push_back(number(record, "lm loss validation"));
    }
  }
  ASSERT_EQ(evaluations[0].size(), 2u);
  ASSERT_EQ(evaluations[1].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(evaluations[1][i], evaluations[0][i], 1e-5 * evaluations[0][i]);
}

TEST(Doubles, TensorSplit) {
  TrainerJob one = job_of("tensor_one"), two = job_of("tensor_two");
  expect_losses(one, with_tensor(two));
}

TEST(Doubles, PipelineWithUntiedHead) {
  TrainerJob one = job_of("pipe_one"), two = job_of("pipe_two");
  for (TrainerJob* job : {&one, &two}) job->set("model.tied_head", "false");
  expect_losses(one, with_pipeline(two));
}

TEST(Doubles, PipelineWithTiedHead) {
  TrainerJob one = job_of("tied_one"), two = job_of("tied_two");
  expect_losses(one, with_pipeline(two));
}

// Tensor and pipeline at once, on four ranks.
TEST(Doubles, TensorAndPipeline) {
  TrainerJob one = job_of("both_one"), four = job_of("both_four");
  for (TrainerJob* job : {&one, &four}) job->set("model.tied_head", "false");
  expect_losses(one, with_pipeline(with_tensor(four)).world(4));
}

TEST(Doubles, PipelineResumesToTheBit) {
  TrainerJob straight = job_of("pipe_straight"), stopped = job_of("pipe_stopped");
  for (TrainerJob* job : {&straight, &stopped}) with_pipeline(*job).set("model.tied_head", "false");
  straight.expect(0);
  stopped.set("train.exit_interval", "6").expect(75);
  stopped.expect(0);
  EXPECT_EQ(difference_of_steps(straight.steps(), stopped.steps(), 1, kSteps), "");
}

TEST(Doubles, OptimizerOfWholeMatrices) {
  TrainerJob one = job_of("matrices_one"), stage0 = job_of("matrices_0"), stage1 = job_of("matrices_1");
  for (TrainerJob* job : {&one, &stage0, &stage1}) job->set("optimizer.plugin", "\"doubles\"").set("train.lr", "0.1");
  stage0.ranks(2, 0);
  expect_losses(one, stage1.ranks(2, 1));
  stage0.expect(0);
  EXPECT_EQ(difference_of_steps(stage0.steps(), stage1.steps(), 1, kSteps), "");
  EXPECT_EQ(difference_of_checkpoints(stage0.checkpoint(kSteps), stage1.checkpoint(kSteps)), "");
}

// State of every kind survives a resume: like the parameter, one number for a tensor, one for the whole model.
TEST(Doubles, StateOfEveryKindIsSavedAndLoaded) {
  TrainerJob straight = job_of("kinds_straight"), one = job_of("kinds_one"), two = job_of("kinds_two");
  for (TrainerJob* job : {&straight, &one, &two}) job->set("optimizer.plugin", "\"doubles\"").set("train.lr", "0.1");
  two.ranks(2);
  straight.expect(0);
  for (TrainerJob* job : {&one, &two}) {
    job->set("train.exit_interval", "6").expect(75);
    job->expect(0);
    EXPECT_EQ(read_state(job->checkpoint(kSteps), "word_embeddings.weight", "updates"), std::vector<float>{kSteps});
    EXPECT_EQ(read_state(job->checkpoint(kSteps), "", "temperature"), std::vector<float>{0.5f});
  }
  EXPECT_EQ(difference_of_steps(straight.steps(), one.steps(), 1, kSteps), "");
  EXPECT_EQ(difference_of_checkpoints(straight.checkpoint(kSteps), one.checkpoint(kSteps)), "");
}

TEST(Doubles, LocalSgdThatAveragesEveryStep) {
  TrainerJob one = job_of("local_one"), two = job_of("local_two");
  for (TrainerJob* job : {&one, &two}) {
    job->set("optimizer.plugin", "\"doubles\"")
        .set("optimizer.matrices", "false")
        .set("train.clip_grad", "0.0")
        .set("train.lr", "0.1");
  }
  two.world(2).set("parallel.data.plugin", "\"doubles\"").set("parallel.data.interval", "1");
  expect_losses(one, two, false);
}

// Between averages the ranks differ; evaluation and save put them together first, and the run goes on from what was
// saved.
TEST(Doubles, LocalSgdThatAveragesSeldom) {
  TrainerJob seldom = job_of("local_seldom"), often = job_of("local_often");
  for (TrainerJob* job : {&seldom, &often}) {
    job->set("optimizer.plugin", "\"doubles\"")
        .set("optimizer.matrices", "false")
        .set("train.clip_grad", "0.0")
        .set("train.lr", "0.1");
    job->world(2).set("parallel.data.plugin", "\"doubles\"").set("checkpoint.save_interval", "5");
  }
  seldom.set("parallel.data.interval", "3").expect(0);
  often.set("parallel.data.interval", "1").expect(0);
  EXPECT_NE(difference_of_steps(seldom.steps(), often.steps(), 1, kSteps), "") << "the interval has no effect";
  const auto steps = seldom.steps();
  EXPECT_LT(number(steps.back(), "lm loss"), number(steps.front(), "lm loss"));
  TrainerJob stopped = job_of("local_stopped");
  stopped.set("optimizer.plugin", "\"doubles\"")
      .set("optimizer.matrices", "false")
      .set("train.clip_grad", "0.0")
      .set("train.lr", "0.1");
  stopped.world(2)
      .set("parallel.data.plugin", "\"doubles\"")
      .set("parallel.data.interval", "3")
      .set("checkpoint.save_interval", "5");
  stopped.set("train.exit_interval", "5").expect(75);
  stopped.set("train.exit_interval", "0").expect(0);
  EXPECT_EQ(difference_of_steps(steps, stopped.steps(), 1, kSteps), "");
}

// The replica guard works through the strategy's interface alone: replicas that differ on purpose are put together
// before they are compared, after every step here, which is what averaging every step does.
TEST(Doubles, LocalSgdUnderTheReplicaGuard) {
  TrainerJob guarded = job_of("local_guarded"), often = job_of("local_every_step");
  for (TrainerJob* job : {&guarded, &often}) {
    job->set("optimizer.plugin", "\"doubles\"").set("optimizer.matrices", "false").set("train.clip_grad", "0.0");
    job->world(2).set("parallel.data.plugin", "\"doubles\"").set("train.lr", "0.1");
  }
  guarded.set("parallel.data.interval", "3").set("guard.interval", "1").expect(0);
  often.set("parallel.data.interval", "1").set("guard.interval", "0").expect(0);
  EXPECT_EQ(difference_of_steps(guarded.steps(), often.steps(), 1, kSteps), "");
  EXPECT_NE(guarded.log().find("11 comparisons took"), std::string::npos);
}

}  // namespace
}  // namespace espalier::testing_support
