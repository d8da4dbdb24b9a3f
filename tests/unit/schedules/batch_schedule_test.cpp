#include "train/batch_schedule.hpp"

#include <gtest/gtest.h>

namespace espalier::app {
namespace {

BatchSpec bloom() {
  BatchSpec spec;
  spec.global_batch = 2048;
  spec.micro_batch = 1;
  spec.micro_batches = {{784, 2}};
  spec.ramp = {192, 16, 9'765'625};
  return spec;
}

TEST(BatchSchedule, GoldenValuesOfTheBloomRun) {
  const BatchSchedule schedule(bloom(), 8);
  EXPECT_EQ(schedule.steps_for(220'000'000), 115'311);
  EXPECT_EQ(schedule.samples_after(12'658), 9'765'808);
  EXPECT_EQ(schedule.samples_after(12'695), 9'841'584);
  EXPECT_EQ(schedule.at(schedule.samples_after(12'657)).global_batch, 2032);
  EXPECT_EQ(schedule.at(schedule.samples_after(12'658)).global_batch, 2048);
  // Iterations are counted from 1 in the log: iteration 7,573 starts after 7,572 of them.
  EXPECT_EQ(schedule.at(schedule.samples_after(7'571)).global_batch, 768);
  EXPECT_EQ(schedule.at(schedule.samples_after(7'572)).global_batch, 784);
}

TEST(BatchSchedule, TheAbandonedRampOfTheBloomRun) {
  BatchSpec spec = bloom();
  spec.ramp = {16, 16, 9'765'625};
  EXPECT_EQ(BatchSchedule(spec, 8).steps_for(220'000'000), 128'728);
}

TEST(BatchSchedule, MicroBatchSizeFollowsTheGlobalBatch) {
  const BatchSchedule schedule(bloom(), 8);
  EXPECT_EQ(schedule.at(0), (StepBatch{192, 1, 24}));
  EXPECT_EQ(schedule.at(schedule.samples_after(7'571)), (StepBatch{768, 1, 96}));
  EXPECT_EQ(schedule.at(schedule.samples_after(7'572)), (StepBatch{784, 2, 49}));
  EXPECT_EQ(schedule.at(100'000'000), (StepBatch{2048, 2, 128}));
}

// C22: the data position of a resume is counted in samples.
TEST(BatchSchedule, SamplesOfARampAreNotIterationsTimesTheFinalBatch) {
  BatchSpec spec;
  spec.global_batch = 16;
  spec.micro_batch = 1;
  spec.ramp = {8, 8, 160};
  const BatchSchedule schedule(spec, 1);
  for (int step = 0; step < 20; ++step) EXPECT_EQ(schedule.at(step * 8).global_batch, 8) << step;
  EXPECT_EQ(schedule.at(160).global_batch, 16);
  EXPECT_EQ(schedule.samples_after(25), 240);
  EXPECT_EQ(schedule.steps_for(240), 25);
  EXPECT_EQ(schedule.samples_after(100), 1440);
}

TEST(BatchSchedule, ClosedFormsAgreeWithCounting) {
  BatchSpec spec;
  spec.global_batch = 29;
  spec.micro_batch = 1;
  spec.ramp = {5, 3, 101};  // increments of 12.6 samples: no border is a multiple of a batch
  const BatchSchedule schedule(spec, 1);
  std::int64_t consumed = 0;
  for (std::int64_t step = 0; step < 60; ++step) {
    EXPECT_EQ(schedule.samples_after(step), consumed);
    EXPECT_EQ(schedule.steps_for(consumed), step);
    if (consumed > 0) {
      EXPECT_EQ(schedule.steps_for(consumed - 1), step - 1) << "the last batch would be incomplete";
    }
    const std::int64_t size = consumed > 101 ? 29 : 5 + consumed * 8 / 101 * 3;
    EXPECT_EQ(schedule.at(consumed).global_batch, size) << consumed;
    consumed += size;
  }
}

TEST(BatchSchedule, PhasesCoverTheRun) {
  const BatchSchedule schedule(bloom(), 8);
  std::int64_t steps = 0, samples = 0;
  const auto phases = schedule.phases(220'000'000);
  EXPECT_EQ(phases.size(), 117u);  // 192, 208, …, 2048
  for (const BatchPhase& phase : phases) {
    EXPECT_EQ(phase.first_step, steps);
    EXPECT_EQ(phase.first_sample, samples);
    EXPECT_EQ(schedule.at(samples), phase.batch);
    steps += phase.steps;
    samples += phase.steps * phase.batch.global_batch;
    EXPECT_EQ(schedule.at(samples - phase.batch.global_batch), phase.batch);
  }
  EXPECT_EQ(steps, 115'311);
  EXPECT_EQ(samples, schedule.samples_after(115'311));
  EXPECT_LE(samples, 220'000'000);
  EXPECT_GT(samples + 2048, 220'000'000);
}

TEST(BatchSchedule, WithoutARampThereIsOnePhase) {
  BatchSpec spec;
  spec.global_batch = 12;
  spec.micro_batch = 3;
  const BatchSchedule schedule(spec, 2);
  const auto phases = schedule.phases(40);
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0].batch, (StepBatch{12, 3, 2}));
  EXPECT_EQ(phases[0].steps, 3);
  EXPECT_TRUE(schedule.phases(11).empty());
}

}  // namespace
}  // namespace espalier::app
