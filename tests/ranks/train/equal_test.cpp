// One rank, two and three train alike: to the bit where docs/architecture.md section 8 says so, within FP32 rounding
// elsewhere.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

/// Indexed data of a few thousand bytes in the job's folder.
void use_indexed_data(TrainerJob& job) {
  const auto text = job.folder() / "text.txt";
  {
    std::ofstream out(text);
    for (int line = 0; line < 300; ++line)
      out << "line " << line << ": " << line * line << " is the square of " << line << "\n";
  }
  const std::string prefix = (job.folder() / "set").string();
  const Ended made = run_command({TRAINER_EXE, "preprocess", "--output", prefix, "--input", text.string()}, {},
                                 job.folder() / "preprocess.txt", 30);
  ASSERT_EQ(made.code, 0) << made.output;
  job.set("data.plugin", "\"data_indexed\"").set("data.train", "[{path = \"" + prefix + "\"}]");
}

void expect_close(const std::vector<Json>& a, const std::vector<Json>& b, int steps, double relative) {
  ASSERT_EQ(a.size(), static_cast<std::size_t>(steps));
  ASSERT_EQ(b.size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = number(a[i], "lm loss"), y = number(b[i], "lm loss");
    ASSERT_GT(x, 0);
    EXPECT_NEAR(x, y, relative * x) << "step " << i + 1;
  }
}

TEST(Equal, TwoRanksLoseWhatOneRankDoesAndZeroStagesAreEqualToTheBit) {
  TrainerJob one("equal_one"), stage0("equal_stage0"), stage1("equal_stage1");
  for (TrainerJob* job : {&one, &stage0, &stage1}) {
    use_indexed_data(*job);
    job->set("train.train_iters", "50").set("checkpoint.save_interval", "25").set("train.lr", "1e-3");
  }
  stage0.ranks(2, 0);
  stage1.ranks(2, 1);
  for (TrainerJob* job : {&one, &stage0, &stage1}) job->expect(0);
  expect_close(one.steps(), stage1.steps(), 50, 1e-5);
  EXPECT_EQ(difference_of_steps(stage0.steps(), stage1.steps(), 1, 50), "");
  for (const int step : {25, 50})
    EXPECT_EQ(difference_of_checkpoints(stage0.checkpoint(step), stage1.checkpoint(step)), "");
  // The losses must have gone somewhere for the comparison to mean anything.
  EXPECT_LT(number(one.steps().back(), "lm loss"), 0.9 * number(one.steps().front(), "lm loss"));
}

TEST(Equal, ThreeRanksWhoseShardsDoNotDivide) {
  TrainerJob one("thirds_one"), stage0("thirds_stage0"), stage1("thirds_stage1");
  for (TrainerJob* job : {&one, &stage0, &stage1}) {
    job->set("train.train_iters", "12").set("train.global_batch_size", "6").set("train.micro_batch_size", "1");
    job->set("model.hidden", "20").set("model.vocab_size", "263").set("train.lr", "1e-3");
  }
  stage0.ranks(3, 0);
  stage1.ranks(3, 1);
  for (TrainerJob* job : {&one, &stage0, &stage1}) job->expect(0);
  expect_close(one.steps(), stage1.steps(), 12, 1e-5);
  EXPECT_EQ(difference_of_steps(stage0.steps(), stage1.steps(), 1, 12), "");
  EXPECT_EQ(difference_of_checkpoints(stage0.checkpoint(12), stage1.checkpoint(12)), "");
}

TEST(Equal, ZeroStagesUnderBf16) {
  TrainerJob stage0("bf16_stage0"), stage1("bf16_stage1");
  for (TrainerJob* job : {&stage0, &stage1})
    job->set("optimizer.plugin", "\"optim_bf16\"").set("train.train_iters", "10");
  stage0.ranks(2, 0).expect(0);
  stage1.ranks(2, 1).expect(0);
  EXPECT_EQ(difference_of_steps(stage0.steps(), stage1.steps(), 1, 10), "");
  EXPECT_EQ(difference_of_checkpoints(stage0.checkpoint(10), stage1.checkpoint(10)), "");
}

// The loss is a sum over tokens divided once: however samples are cut into micro-batches and ranks, uneven masks
// included.
TEST(Equal, MaskedTokensDoNotSeeMicroBatchesAndRanks) {
  TrainerJob whole("mask_whole"), cut("mask_cut"), ranks("mask_ranks");
  for (TrainerJob* job : {&whole, &cut, &ranks}) {
    job->set("train.train_iters", "5").set("train.micro_batch_size", "1").set("train.lr", "1e-3");
    job->set("plugins.search_path", "[\"" ESPALIER_PLUGIN_DIR "\", \"" FAULTS_DIR "\"]");
    job->set("data.plugin", "\"faults\"").set("data.mask", "true");
  }
  whole.set("train.micro_batch_size", "8").expect(0);
  cut.expect(0);
  ranks.ranks(2).expect(0);
  for (TrainerJob* job : {&cut, &ranks}) {
    expect_close(whole.steps(), job->steps(), 5, 1e-5);
    for (std::size_t i = 0; i < 5; ++i) {
      const double norm = number(whole.steps()[i], "grad norm");
      EXPECT_NEAR(number(job->steps()[i], "grad norm"), norm, 1e-4 * norm);
    }
  }
}

TEST(Equal, RerunsAreEqualToTheBit) {
  for (const char* backend : {"\"reference\"", "\"kernels_fused\""}) {
    TrainerJob first("rerun_a"), second("rerun_b");
    for (TrainerJob* job : {&first, &second}) {
      job->set("backend.plugin", backend).set("optimizer.plugin", "\"optim_bf16\"").set("train.train_iters", "8");
      job->set("model.attention_dropout", "0.1").set("model.hidden_dropout", "0.1").ranks(2).expect(0);
    }
    EXPECT_EQ(difference_of_steps(first.steps(), second.steps(), 1, 8), "") << backend;
    EXPECT_EQ(difference_of_checkpoints(first.checkpoint(8), second.checkpoint(8)), "") << backend;
  }
}

}  // namespace
}  // namespace espalier::testing_support
