// A run that stopped and went on is the run that did not stop: every step, rate, scale and batch.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

/// Runs `straight` at once, `stopped` in pieces that end with exit_interval, and expects the same records and weights.
void expect_same(TrainerJob& straight, TrainerJob& stopped, int steps, int interval) {
  straight.expect(0);
  stopped.set("train.exit_interval", std::to_string(interval));
  for (int done = interval; done < steps; done += interval) {
    const Ended ended = stopped.expect(75);
    EXPECT_NE(ended.output.find("train.exit_interval after step " + std::to_string(done)), std::string::npos)
        << ended.output;
  }
  stopped.expect(0);
  EXPECT_EQ(difference_of_steps(straight.steps(), stopped.steps(), 1, steps), "");
  EXPECT_EQ(difference_of_checkpoints(straight.checkpoint(steps), stopped.checkpoint(steps)), "");
}

// L01: cosine over 100 steps, stopped at 40: the rates go on as if nothing had happened.
TEST(Resume, LearningRatesGoOn) {
  TrainerJob straight("rate_straight"), stopped("rate_stopped");
  for (TrainerJob* job : {&straight, &stopped}) {
    job->set("train.train_iters", "100").set("train.global_batch_size", "2").set("train.micro_batch_size", "1");
    job->set("train.lr_warmup_samples", "20").set("train.min_lr", "1e-4").set("backend.plugin", "\"kernels_fused\"");
    job->set("optimizer.plugin", "\"optim_bf16\"");
  }
  expect_same(straight, stopped, 100, 40);
  const auto a = straight.steps(), b = stopped.steps();
  for (std::size_t i = 0; i < 100; ++i)
    EXPECT_NEAR(number(a[i], "learning rate"), number(b[i], "learning rate"), 1e-12);
  EXPECT_LT(number(b[99], "learning rate"), 1.1e-4);
}

// C22: ramp 8 → 16 by 8 over 160 samples is 20 steps of 8, then 16; a resume after step 25 goes on at sample 240.
TEST(Resume, BatchRampGoesOnAtItsSample) {
  TrainerJob straight("ramp_straight"), stopped("ramp_stopped");
  for (TrainerJob* job : {&straight, &stopped}) {
    job->set("train.train_iters", "28")
        .set("train.global_batch_size", "16")
        .set("train.rampup_batch_size", "[8, 8, 160]");
    job->set("model.layers", "1").set("model.seq_length", "16").ranks(2);
  }
  expect_same(straight, stopped, 28, 25);
  const auto steps = stopped.steps();
  EXPECT_EQ(number(steps[19], "global batch size"), 8);
  EXPECT_EQ(number(steps[20], "global batch size"), 16);
  EXPECT_EQ(steps[19].at("samples"), 160);
  EXPECT_EQ(steps[24].at("samples"), 240);
  EXPECT_EQ(steps[25].at("samples"), 256);
}

/// A dataset of `count` samples that differ, as 18 bytes and their end each. @return its prefix.
std::string samples_in(const std::filesystem::path& folder, int count) {
  const auto text = folder / "text.txt";
  {
    std::ofstream out(text);
    for (int line = 0; line < count; ++line) out << "sample number " << line << (line < 10 ? " " : "") << ".\n";
  }
  const std::string prefix = (folder / "set").string();
  const Ended made = run_command({TRAINER_EXE, "preprocess", "--output", prefix, "--input", text.string()}, {},
                                 folder / "preprocess.txt", 30);
  EXPECT_EQ(made.code, 0) << made.output;
  return prefix;
}

// C23: two and a half epochs of eight steps. Equal losses at a rate too small to move a weight mean equal samples,
// since the samples differ.
TEST(Resume, EveryStopWithinAnEpochReadsTheSameSamples) {
  TrainerJob straight("epoch_straight");
  const std::string prefix = samples_in(straight.folder(), 16);
  const auto prepare = [&](TrainerJob& job) {
    job.set("data.plugin", "\"data_indexed\"").set("data.train", "[{path = \"" + prefix + "\"}]");
    job.set("model.layers", "1").set("model.hidden", "8").set("model.heads", "1").set("model.seq_length", "18");
    job.set("train.train_iters", "20")
        .set("train.global_batch_size", "2")
        .set("train.micro_batch_size", "1")
        .set("train.lr", "1e-30");
  };
  prepare(straight);
  straight.expect(0);
  const auto expected = straight.steps();
  int distinct = 0;
  for (std::size_t i = 1; i < expected.size(); ++i)
    distinct += number(expected[i], "lm loss") != number(expected[i - 1], "lm loss");
  EXPECT_GT(distinct, 15) << "samples must differ for their losses to tell them apart";
  for (int stop = 1; stop < 20; ++stop) {
    TrainerJob job("epoch_" + std::to_string(stop));
    prepare(job);
    job.set("train.exit_interval", std::to_string(stop)).expect(75);
    job.set("train.exit_interval", "0").expect(0);
    EXPECT_EQ(difference_of_steps(expected, job.steps(), 1, 20), "") << "stopped after step " << stop;
  }
}

// C12: twelve samples on four ranks, a step of one sample a rank, two epochs: whichever step a stop follows, every rank
// goes on with its own next samples.
TEST(Resume, FourRanksGoOnWithinAnEpoch) {
  TrainerJob straight("four_straight");
  const std::string prefix = samples_in(straight.folder(), 12);
  const auto prepare = [&](TrainerJob& job) {
    job.set("data.plugin", "\"data_indexed\"").set("data.train", "[{path = \"" + prefix + "\"}]");
    job.set("model.layers", "1").set("model.hidden", "8").set("model.heads", "1").set("model.seq_length", "18");
    job.set("train.train_iters", "6").set("train.global_batch_size", "4").set("train.micro_batch_size", "1").ranks(4);
  };
  prepare(straight);
  straight.expect(0);
  for (const int stop : {2, 4}) {
    TrainerJob job("four_" + std::to_string(stop));
    prepare(job);
    job.set("train.exit_interval", std::to_string(stop)).expect(75);
    job.set("train.exit_interval", "0").expect(0);
    EXPECT_EQ(difference_of_steps(straight.steps(), job.steps(), 1, 6), "") << "stopped after step " << stop;
  }
}

TEST(Resume, OnOneRankAndOnTwo) {
  for (const int ranks : {1, 2}) {
    TrainerJob straight("pieces_straight"), stopped("pieces_stopped");
    for (TrainerJob* job : {&straight, &stopped}) {
      job->set("train.train_iters", "12")
          .set("model.attention_dropout", "0.1")
          .set("model.hidden_dropout", "0.1")
          .ranks(ranks);
    }
    expect_same(straight, stopped, 12, 5);
  }
}

TEST(Resume, AFinishedRunSaysSo) {
  TrainerJob job("finished");
  job.set("train.train_iters", "2").expect(0);
  const auto before = job.steps();
  const Ended again = job.expect(0);
  EXPECT_NE(again.output.find("nothing to train: step 2 of 2 is done"), std::string::npos) << again.output;
  EXPECT_EQ(difference_of_steps(before, job.steps(), 1, 2), "");
}

// C05: a pointer that is damaged, or gone, leads to the newest complete checkpoint, and the log says so.
TEST(Resume, DamagedPointerUsesTheNewestCheckpoint) {
  for (const char* content : std::initializer_list<const char*>{"step_999", "", "step_2\r\n", nullptr}) {
    TrainerJob job("pointer");
    job.set("train.train_iters", "4").set("train.exit_interval", "2").expect(75);
    const auto latest = job.run_dir() / "checkpoints" / "latest";
    if (content == nullptr) {
      std::filesystem::remove(latest);
    } else {
      std::ofstream(latest) << content;
    }
    const Ended ended = job.expect(0);
    EXPECT_EQ(job.steps().size(), 4u);
    const bool good = content != nullptr && std::string(content).starts_with("step_2");
    EXPECT_EQ(count_of(ended.output, "using the newest complete checkpoint, step_2"), good ? 0 : 1) << ended.output;
  }
}

}  // namespace
}  // namespace espalier::testing_support
