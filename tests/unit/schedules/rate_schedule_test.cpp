#include "train/rate_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "train/batch_schedule.hpp"

namespace espalier::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RateSpec bloom() {
  RateSpec spec;
  spec.lr = 6e-5;
  spec.min_lr = 6e-6;
  spec.decay = RateDecay::cosine;
  spec.warmup_samples = 183'105;
  spec.decay_samples = 200'000'000;
  return spec;
}

// Lines of BLOOM's log; it prints four digits.
TEST(RateSchedule, GoldenValuesOfTheBloomRun) {
  const RateSchedule schedule(bloom());
  EXPECT_NEAR(schedule.rate(9'841'584), 5.969e-5, 0.5e-8);
  EXPECT_NEAR(schedule.rate(71'455'664), 4.475e-5, 0.5e-8);
  EXPECT_NEAR(schedule.rate(158'692'272), 1.150e-5, 0.5e-8);
  EXPECT_NEAR(schedule.rate(177'929'136), 7.609e-6, 0.5e-9);
}

TEST(RateSchedule, WarmUpIsLinearFromZeroAndTheFloorHolds) {
  const RateSchedule schedule(bloom());
  EXPECT_EQ(schedule.rate(0), 0.0);
  EXPECT_EQ(schedule.rate(183'105), 6e-5);
  EXPECT_NEAR(schedule.rate(91'552), 6e-5 * 91'552 / 183'105, 1e-18);
  EXPECT_EQ(schedule.rate(200'000'000), 6e-6);
  EXPECT_EQ(schedule.rate(200'000'001), 6e-6);
  EXPECT_GT(schedule.rate(199'000'000), 6e-6);
}

TEST(RateSchedule, EveryShape) {
  RateSpec spec;
  spec.lr = 1.0;
  spec.min_lr = 0.1;
  spec.warmup_samples = 100;
  spec.decay_samples = 1100;

  spec.decay = RateDecay::constant;
  EXPECT_EQ(RateSchedule(spec).rate(50), 0.5);
  EXPECT_EQ(RateSchedule(spec).rate(1'000'000), 1.0);

  spec.decay = RateDecay::linear;
  EXPECT_DOUBLE_EQ(RateSchedule(spec).rate(600), 0.55);
  EXPECT_DOUBLE_EQ(RateSchedule(spec).rate(1100), 0.1);

  spec.decay = RateDecay::cosine;
  EXPECT_NEAR(RateSchedule(spec).rate(600), 0.55, 1e-12);
  EXPECT_NEAR(RateSchedule(spec).rate(350), 0.1 + 0.9 * 0.5 * (1 + 0.70710678118654752), 1e-12);

  spec.decay = RateDecay::inverse_sqrt;
  EXPECT_DOUBLE_EQ(RateSchedule(spec).rate(100), 1.0);
  EXPECT_DOUBLE_EQ(RateSchedule(spec).rate(400), 0.5);
  EXPECT_DOUBLE_EQ(RateSchedule(spec).rate(1101), 0.1);
  spec.min_lr = 0.6;
  EXPECT_DOUBLE_EQ(RateSchedule(spec).rate(400), 0.6);
  spec.min_lr = 0.1;

  spec.decay = RateDecay::wsd;
  spec.wsd_decay_samples = 200;
  EXPECT_DOUBLE_EQ(RateSchedule(spec).rate(900), 1.0);
  EXPECT_DOUBLE_EQ(RateSchedule(spec).rate(1000), 0.55);
  EXPECT_DOUBLE_EQ(RateSchedule(spec).rate(1100), 0.1);
  spec.wsd_decay = WsdDecay::cosine;
  EXPECT_NEAR(RateSchedule(spec).rate(1000), 0.55, 1e-12);
  spec.wsd_decay = WsdDecay::exponential;
  EXPECT_NEAR(RateSchedule(spec).rate(1000), 0.1 + 0.9 * (2 * 0.70710678118654752 - 1), 1e-12);
  EXPECT_NEAR(RateSchedule(spec).rate(1100), 0.1, 1e-12);
  spec.wsd_decay = WsdDecay::minus_sqrt;
  EXPECT_NEAR(RateSchedule(spec).rate(950), 0.1 + 0.9 * 0.5, 1e-12);
}

// L01: the rate is a function of consumed samples, so a second object that starts at step 40 gives the same rates.
TEST(RateSchedule, AResumeContinuesTheSameCurve) {
  RateSpec spec = bloom();
  spec.warmup_samples = 40;
  spec.decay_samples = 400;
  const RateSchedule whole(spec);
  std::vector<double> uninterrupted, resumed;
  for (std::int64_t step = 0; step < 100; ++step) uninterrupted.push_back(whole.rate(step * 4));
  const RateSchedule first(spec), second(spec);
  for (std::int64_t step = 0; step < 40; ++step) resumed.push_back(first.rate(step * 4));
  for (std::int64_t step = 40; step < 100; ++step) resumed.push_back(second.rate(step * 4));
  EXPECT_EQ(uninterrupted, resumed);
}

// L05: with a batch ramp, lengths are samples, not iterations times the final batch.
TEST(RateSchedule, TheMinimumIsReachedWithTheLastStepOfARamp) {
  BatchSpec batch;
  batch.global_batch = 16;
  batch.micro_batch = 1;
  batch.ramp = {8, 8, 160};
  const BatchSchedule steps(batch, 1);
  const std::int64_t samples = steps.samples_after(100);
  EXPECT_EQ(samples, 1440);
  RateSpec spec = bloom();
  spec.warmup_samples = 0;
  spec.decay_samples = samples;
  const RateSchedule schedule(spec);
  EXPECT_GT(schedule.rate(steps.samples_after(99)), 6e-6);
  EXPECT_EQ(schedule.rate(steps.samples_after(100)), 6e-6);
}

// L06.
TEST(RateSchedule, SummaryAndWarnings) {
  const RateSpec spec = bloom();
  EXPECT_EQ(
      summary(spec, 220'000'000),
      "learning rate (cosine, 6e-05 to 6e-06): warm-up ends at 183105, minimum reached at 200000000, training ends at "
      "220000000 samples");
  EXPECT_THAT(warnings(spec, 220'000'000),
              ElementsAre(HasSubstr("reached at 200000000 samples, before training ends at 220000000")));
  EXPECT_THAT(warnings(spec, 200'000'000), IsEmpty());
  EXPECT_THAT(warnings(spec, 100'000), ElementsAre(HasSubstr("the peak rate is never reached")));
  RateSpec constant = spec;
  constant.decay = RateDecay::constant;
  EXPECT_THAT(summary(constant, 220'000'000), HasSubstr("minimum reached never"));
  EXPECT_THAT(warnings(constant, 220'000'000), IsEmpty());
}

}  // namespace
}  // namespace espalier::app
