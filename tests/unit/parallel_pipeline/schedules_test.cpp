// Every schedule for every small count: sound, bounded in memory, and as idle as its formula says.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "espalier/parallel/checker.hpp"
#include "pipeline.hpp"

namespace espalier::parallel_pipeline {
namespace {

constexpr Schedule kSchedules[] = {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved,
                                   Schedule::zero_bubble};
constexpr const char* kNames[] = {"gpipe", "one_f_one_b", "interleaved", "zero_bubble"};

Pipeline make(Schedule schedule, int stages, int chunks = 1) {
  Options options;
  options.schedule = schedule;
  options.chunks = chunks;
  return Pipeline(options, stages, {});
}

using Case = std::tuple<Schedule, int>;  // schedule, stages

class Schedules : public testing::TestWithParam<Case> {
 protected:
  Schedule schedule() const { return std::get<0>(GetParam()); }
  int stages() const { return std::get<1>(GetParam()); }
  std::vector<int> chunk_counts() const {
    return schedule() == Schedule::interleaved && stages() > 1 ? std::vector<int>{2, 3} : std::vector<int>{1};
  }
  /// Most activations a stage may keep.
  int bound(int stage, int chunks, int m) const {
    const int all = m * chunks;
    switch (schedule()) {
      case Schedule::gpipe:
        return all;
      case Schedule::one_f_one_b:
        return std::min(all, stages() - stage);
      case Schedule::interleaved:
        return std::min(all, (stages() - stage - 1) * 2 + (chunks - 1) * stages() + 1);
      case Schedule::zero_bubble:
        return std::min(all, stages());
    }
    return 0;
  }
};

TEST_P(Schedules, AreSoundAndBounded) {
  for (const int chunks : chunk_counts()) {
    const Pipeline pipeline = make(schedule(), stages(), chunks);
    for (const int m : {1, 2, 3, 4, 5, 6, 7, 8, 17}) {
      EXPECT_FALSE(pipeline.accepts(Mode::train, m));
      const auto live = check_schedule(lists_of(pipeline, Mode::train, m));
      for (int stage = 0; stage < stages(); ++stage) {
        EXPECT_LE(live[static_cast<std::size_t>(stage)], bound(stage, chunks, m)) << "stage " << stage << " m " << m;
      }
      EXPECT_EQ(check_schedule(lists_of(pipeline, Mode::forward_only, m)),
                std::vector<int>(static_cast<std::size_t>(stages()), 1));
    }
  }
}

/// (p − 1) / (work + p − 1) of every stage, where `work` counts forwards, or thirds.
void expect_idle(const Pipeline& pipeline, int m, const WorkDurations& durations, int work) {
  const double p = pipeline.stages();
  for (const double share : idle_shares(lists_of(pipeline, Mode::train, m), durations)) {
    EXPECT_EQ(share, (p - 1) / (work + p - 1)) << "p " << p << " m " << m;
  }
}

TEST_P(Schedules, AreIdleAsTheFormulaSays) {
  const int p = stages();
  for (const int chunks : chunk_counts()) {
    const Pipeline pipeline = make(schedule(), p, chunks);
    for (const int m : {1, 2, 3, 4, 5, 6, 8, 12, 16, 24}) {
      // A backward as long as its forward and twice as long: the share is the same.
      if (schedule() == Schedule::gpipe || schedule() == Schedule::one_f_one_b) {
        expect_idle(pipeline, m, {1, 1, 1}, m);
        expect_idle(pipeline, m, {2, 1, 1}, m);
      }
      if (schedule() == Schedule::interleaved && m % p == 0) expect_idle(pipeline, m, {1, 1, 1}, chunks * m);
      if (schedule() == Schedule::zero_bubble && m >= p) expect_idle(pipeline, m, {1, 1, 1}, 3 * m);
    }
  }
}

TEST(SchedulesOfBloom, TwelveStages) {
  for (const int m : {12, 49, 98, 128}) {
    EXPECT_EQ(check_schedule(lists_of(make(Schedule::one_f_one_b, 12), Mode::train, m)).front(), 12);
    EXPECT_EQ(check_schedule(lists_of(make(Schedule::zero_bubble, 12), Mode::train, m)).back(), 12);
    check_schedule(lists_of(make(Schedule::interleaved, 12, 3), Mode::train, m));
    expect_idle(make(Schedule::zero_bubble, 12), m, {1, 1, 1}, 3 * m);
  }
}

// Receives are there before the message: the stage works while it comes.
TEST(Weave, PostsReceivesBeforeTheWorkTheyOverlap) {
  const auto list = make(Schedule::one_f_one_b, 2).schedule(Mode::train, 1, 2);
  const std::vector<Instruction> expected = {{Do::receive_activation, 0, 0, 0},
                                             {Do::forward, 0, 0, 0},
                                             {Do::receive_activation, 1, 0, 0},
                                             {Do::backward, 0, 0, 0},
                                             {Do::send_gradient, 0, 0, 0},
                                             {Do::forward, 1, 0, 0},
                                             {Do::backward, 1, 0, 0},
                                             {Do::send_gradient, 1, 0, 0},
                                             {Do::reduce_gradients, 0, 0, 0},
                                             {Do::reduce_tied_gradients, 0, 0, 0},
                                             {Do::step, 0, 0, 0}};
  EXPECT_EQ(list, expected);
}

// Case P14: one stage is exactly no pipeline.
TEST(OneStage, SchedulesAreThoseOfNoPipeline) {
  const auto none = make_single_stage();
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved}) {
    for (const Mode mode : {Mode::train, Mode::forward_only}) {
      if (schedule == Schedule::gpipe && mode == Mode::train) continue;  // all forwards first
      EXPECT_EQ(make(schedule, 1).schedule(mode, 0, 3), none->schedule(mode, 0, 3));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Schedules,
                         testing::Combine(testing::ValuesIn(kSchedules), testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& test) {
                           return std::string(kNames[static_cast<std::size_t>(std::get<0>(test.param))]) + "_" +
                                  std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace espalier::parallel_pipeline
