// Gradients that are not finite, under each precision: the step is skipped on every rank, counted, told, and changes
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "checkpoint/manifest.hpp"
#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

using testing::HasSubstr;

/// A job whose kernels go wrong in the steps of this process that are named.
TrainerJob& break_gradients(TrainerJob& job, const std::string& fault, const std::string& steps) {
  job.set("plugins.search_path", "[\"" ESPALIER_PLUGIN_DIR "\", \"" FAULTS_DIR "\"]");
  job.set("backend.plugin", "\"faults\"").set("backend.fault", "\"" + fault + "\"").set("backend.steps", steps);
  return job;
}

/// Whether two checkpoints have the same weights, moments and Adam's time.
std::string difference_of_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  for (const app::StoredTensor& tensor : app::Manifest::read(a).tensors) {
    if (read_state(a, tensor.parameter, tensor.state) != read_state(b, tensor.parameter, tensor.state)) {
      return tensor.parameter + " " + tensor.state;
    }
  }
  return "";
}

// P15: NaN in one gradient at step 5 under BF16.
void expect_skipped_nan(int ranks, const std::string& clip) {
  TrainerJob job("nan");
  job.set("optimizer.plugin", "\"optim_bf16\"")
      .set("train.train_iters", "7")
      .set("checkpoint.save_interval", "1")
      .set("train.clip_grad", clip);
  break_gradients(job, "nan", "[5]").ranks(ranks);
  if (ranks > 1) job.set("backend.rank", "1");
  const Ended ended = job.expect(0);
  const auto steps = job.steps();
  ASSERT_EQ(steps.size(), 7u);
  EXPECT_EQ(number(steps[3], "nan steps"), 0);
  EXPECT_EQ(number(steps[4], "nan steps"), 1);
  EXPECT_EQ(number(steps[4], "skipped steps"), 1);
  EXPECT_EQ(number(steps[4], "applied steps"), 4);
  EXPECT_TRUE(std::isnan(number(steps[4], "grad norm")));
  EXPECT_EQ(number(steps[6], "nan steps"), 1);
  EXPECT_EQ(number(steps[6], "applied steps"), 6);
  EXPECT_TRUE(std::isfinite(number(steps[6], "grad norm")));
  EXPECT_EQ(difference_of_tensors(job.checkpoint(4), job.checkpoint(5)), "");
  EXPECT_NE(difference_of_tensors(job.checkpoint(5), job.checkpoint(6)), "");
  EXPECT_THAT(job.log(), HasSubstr("number of skipped iterations:   1 | number of nan iterations:   1 |"));
  EXPECT_EQ(count_of(ended.output, "step 5: gradients are not finite, first in h."), 1) << ended.output;
}

TEST(Nan, IsSkippedAndCountedUnderBf16) { expect_skipped_nan(1, "1.0"); }
TEST(Nan, IsSkippedWithoutClipping) { expect_skipped_nan(1, "0.0"); }
TEST(Nan, OfOneRankIsSkippedByBoth) { expect_skipped_nan(2, "1.0"); }

TEST(Nan, PolicyStopEndsTheRunOnce) {
  for (const int ranks : {1, 2}) {
    TrainerJob job("nan_stop");
    job.set("train.nan_policy", "\"stop\"").set("train.train_iters", "7").set("checkpoint.save_interval", "2");
    break_gradients(job, "nan", "[5]").ranks(ranks);
    const Ended ended = job.expect(7);
    EXPECT_EQ(count_of(ended.output, "(train.nan_policy = \"stop\")"), 1) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("step 5: the gradient of h."));
    EXPECT_TRUE(std::filesystem::exists(job.checkpoint(4) / "manifest.json"));
    EXPECT_FALSE(std::filesystem::exists(job.checkpoint(5)));
  }
}

TEST(Nan, TooManyInARowEndTheRun) {
  TrainerJob job("nan_row");
  job.set("train.max_skipped", "3").set("train.train_iters", "9");
  const Ended ended = break_gradients(job, "nan", "[2, 3, 5, 6, 7, 8]").expect(7);
  EXPECT_THAT(ended.output, HasSubstr("step 8: 4 steps in a row were skipped (train.max_skipped = 3)"));
  EXPECT_EQ(job.steps().size(), 8u) << "the step that ended the run is on record";
}

// P01: persistent overflow from scale 2^16, minimum 1, hysteresis 1: the run ends at the 17th.
TEST(LossScale, EndsAtTheSeventeenthOverflow) {
  for (const int ranks : {1, 2}) {
    TrainerJob job("scale_end");
    job.set("optimizer.plugin", "\"optim_fp16\"")
        .set("optimizer.initial_scale_power", "16")
        .set("optimizer.hysteresis", "1");
    job.set("optimizer.min_loss_scale", "1.0").set("train.train_iters", "30").set("checkpoint.save_interval", "4");
    break_gradients(job, "infinity", "[3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21]")
        .ranks(ranks);
    const Ended ended = job.expect(7);
    EXPECT_EQ(count_of(ended.output, "the loss scale is at its minimum"), 1) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("step 19, first bad parameter h."));
    EXPECT_THAT(ended.output, HasSubstr("17 at 4 18 at 2 19 at 1"));
    const auto steps = job.steps();
    ASSERT_GE(steps.size(), 18u);
    EXPECT_EQ(number(steps[17], "skipped steps"), 16);
    EXPECT_EQ(number(steps[17], "nan steps"), 0) << "an overflow of the scale is no NaN step";
    EXPECT_EQ(number(steps[2], "loss scale"), 32768);
    EXPECT_EQ(difference_of_tensors(job.checkpoint(4), job.checkpoint(16)), "")
        << "sixteen overflows changed something";
  }
}

// P05: overflow at steps 2, 3 and 4 of 10.
TEST(LossScale, SkippedStepsConsumeSamplesButNoAdamTime) {
  TrainerJob job("scale_skips");
  job.set("optimizer.plugin", "\"optim_fp16\"").set("optimizer.hysteresis", "1").set("train.train_iters", "10");
  job.set("train.lr_warmup_samples", "40");
  const Ended ended = break_gradients(job, "infinity", "[2, 3, 4]").expect(0);
  const auto steps = job.steps();
  ASSERT_EQ(steps.size(), 10u);
  EXPECT_EQ(number(steps[9], "applied steps"), 7);
  EXPECT_EQ(number(steps[9], "skipped steps"), 3);
  EXPECT_EQ(steps[9].at("samples"), 80);
  EXPECT_EQ(app::Manifest::read(job.checkpoint(10)).train.applied_steps, 7);
  // The rate is a function of consumed samples alone, as docs/recipe.md says: skipped steps move it on.
  TrainerJob calm("scale_calm");
  calm.set("optimizer.plugin", "\"optim_fp16\"")
      .set("train.train_iters", "10")
      .set("train.lr_warmup_samples", "40")
      .expect(0);
  const auto undisturbed = calm.steps();
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(steps[i].at("learning rate"), undisturbed[i].at("learning rate"));
  EXPECT_EQ(number(steps[9], "loss scale"), 8192);
  EXPECT_THAT(ended.output, HasSubstr("all 10 steps are done: 7 applied, 3 skipped, 80 samples consumed"));
  EXPECT_THAT(job.log(), HasSubstr("loss scale: 8192.0 |"));
}

// P06: scale, growth counter and hysteresis survive a resume; the next growth comes at the same step.
TEST(LossScale, ResumesInTheMiddleOfItsWindow) {
  TrainerJob straight("scale_straight"), stopped("scale_stopped");
  for (TrainerJob* job : {&straight, &stopped}) {
    job->set("optimizer.plugin", "\"optim_fp16\"")
        .set("optimizer.initial_scale_power", "8")
        .set("optimizer.hysteresis", "2");
    job->set("optimizer.loss_scale_window", "6").set("train.train_iters", "16");
  }
  break_gradients(straight, "infinity", "[3]").set("train.exit_interval", "0").expect(0);
  break_gradients(stopped, "infinity", "[3]").set("train.exit_interval", "8").expect(75);
  const auto scalars = app::Manifest::read(stopped.checkpoint(8)).scalars;
  const auto scalar = [&](std::string_view name) {
    for (const auto& [known, value] : scalars) {
      if (known == name) return value;
    }
    return std::nan("");
  };
  EXPECT_EQ(scalar("loss_scale"), 256);
  EXPECT_EQ(scalar("loss_scale_good_steps"), 5);
  EXPECT_EQ(scalar("loss_scale_hysteresis_left"), 1);
  break_gradients(stopped, "", "[]").set("train.exit_interval", "0").expect(0);
  EXPECT_EQ(difference_of_steps(straight.steps(), stopped.steps(), 1, 16), "");
  EXPECT_EQ(difference_of_checkpoints(straight.checkpoint(16), stopped.checkpoint(16)), "");
  EXPECT_EQ(number(stopped.steps()[8], "loss scale"), 512) << "grown after six good steps, the ninth one the sixth";
}

// P03 with data ranks: infinity on one rank only, both skip and have the same scale after it.
TEST(LossScale, OverflowOfOneRankMovesBoth) {
  TrainerJob job("scale_one_rank");
  job.set("optimizer.plugin", "\"optim_fp16\"").set("optimizer.hysteresis", "1").set("train.train_iters", "6").ranks(2);
  break_gradients(job, "infinity", "[3]").set("backend.rank", "1").expect(0);
  const auto steps = job.steps();
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(number(steps[2], "skipped steps"), 1);
  EXPECT_EQ(number(steps[5], "skipped steps"), 1);
  EXPECT_EQ(number(steps[5], "loss scale"), number(steps[0], "loss scale") / 2);
}

// P08: under BF16 the same batch twice, at a rate too small to move a weight, gives equal norms, within 1 % of FP32's,
// and the scale is 1.
TEST(Bf16, NormsAreThoseOfFp32) {
  const auto run = [](const std::string& optimizer) {
    TrainerJob job("norm_" + optimizer);
    job.set("optimizer.plugin", "\"" + optimizer + "\"")
        .set("train.train_iters", "2")
        .set("train.lr", "1e-30")
        .set("train.global_batch_size", "64");
    job.set("train.micro_batch_size", "8").expect(0);
    return job.steps();
  };
  const auto wide = run("optim_fp32"), narrow = run("optim_bf16");
  for (std::size_t i = 0; i < 2; ++i) {
    const double expected = number(wide[i], "grad norm");
    EXPECT_NEAR(number(narrow[i], "grad norm"), expected, 0.01 * expected);
    EXPECT_EQ(number(narrow[i], "loss scale"), 1);
  }
  // The same samples again: exactly the same norm.
  TrainerJob again("norm_again");
  again.set("optimizer.plugin", "\"optim_bf16\"")
      .set("train.lr", "1e-30")
      .set("train.train_iters", "1")
      .set("train.global_batch_size", "64");
  again.set("train.micro_batch_size", "8").expect(0);
  EXPECT_EQ(again.steps()[0].at("grad norm"), narrow[0].at("grad norm"));
}

// P09 in a whole run: 512 micro-batches of one sample sum to what 8 of 64 do; a BF16 accumulator would stop growing on
// the way.
TEST(Bf16, ManyMicroBatchesAddUp) {
  const auto norm = [](const std::string& micro_batch) {
    TrainerJob job("micro_" + micro_batch);
    job.set("optimizer.plugin", "\"optim_bf16\"").set("train.train_iters", "1").set("train.global_batch_size", "512");
    job.set("train.micro_batch_size", micro_batch)
        .set("model.layers", "1")
        .set("model.hidden", "8")
        .set("model.heads", "1");
    job.set("model.seq_length", "4").expect(0);
    return number(job.steps()[0], "grad norm");
  };
  const double few = norm("64");
  EXPECT_NEAR(norm("1"), few, 0.005 * few);
}

// P17: with zero gradients and decay 0.1 matrices shrink and nothing else moves.
TEST(Decay, TouchesMatricesOnly) {
  TrainerJob job("decay");
  job.set("train.train_iters", "4").set("checkpoint.save_interval", "3").set("train.lr_decay_style", "\"constant\"");
  job.set("optimizer.weight_decay", "0.1");
  break_gradients(job, "zero", "[4]").expect(0);
  const app::Manifest manifest = app::Manifest::read(job.checkpoint(3));
  int matrices = 0, vectors = 0, moved_vectors = 0;
  for (const app::StoredTensor& tensor : manifest.tensors) {
    if (tensor.state != "master" && tensor.state != "weight" && tensor.state != "working") continue;
    const auto before = read_state(job.checkpoint(3), tensor.parameter, tensor.state);
    const auto after = read_state(job.checkpoint(4), tensor.parameter, tensor.state);
    if (tensor.shape.rank() >= 2) {
      ++matrices;
      for (std::size_t i = 0; i < before.size(); ++i) {
        ASSERT_NEAR(after[i], before[i] * (1 - 1e-2 * 0.1), 2e-7 * std::abs(before[i])) << tensor.parameter;
      }
      EXPECT_NE(before, after) << tensor.parameter;
    } else {
      ++vectors;
      EXPECT_EQ(before, after) << tensor.parameter;
      for (const float value : before) moved_vectors += value != 0 && value != 1;
    }
  }
  EXPECT_EQ(matrices, 9);
  EXPECT_EQ(vectors, 20);
  EXPECT_GT(moved_vectors, 100) << "biases that are zero cannot show that they do not decay";
}

}  // namespace
}  // namespace espalier::testing_support
