// The loader: which samples each rank gets, wherever a run starts, and what its thread may and may not do.
#include "train/loader.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

constexpr std::int64_t kSeq = 4;
constexpr std::int64_t kVocab = 1000;

/// Sample i is the tokens i, i + 1, …; the target at position i % kSeq does not count.
class Counting final : public Dataset {
 public:
  std::span<const SampleSet> sets() const override { return {&set_, 1}; }
  std::int64_t sample_tokens() const override { return kSeq + 1; }
  void read(int, std::int64_t index, std::span<std::int32_t> tokens, std::span<std::uint8_t> mask) const override {
    if (index == broken) throw IoError("sample 7 is lost");
    last = std::max(last.load(), index);
    for (std::size_t k = 0; k < tokens.size(); ++k)
      tokens[k] = static_cast<std::int32_t>(index) + static_cast<std::int32_t>(k);
    mask[static_cast<std::size_t>(index % kSeq)] = 0;
  }
  SampleOrigin origin(int, std::int64_t index) const override { return {"counting", index}; }
  std::uint64_t fingerprint() const override { return 1; }

  std::int64_t broken = -1;
  mutable std::atomic<std::int64_t> last{-1};

 private:
  SampleSet set_{"train", Split::train, 1'000'000};
};

RunFacts facts_for(int data, int rank) {
  RunFacts facts;
  facts.model.seq_length = kSeq;
  facts.model.tokenizer_vocab = kVocab;
  facts.grid.data = data;
  facts.grid.data_rank = rank;
  return facts;
}

BatchSchedule schedule_for(std::int64_t global, std::int64_t micro, int data) {
  BatchSpec spec;
  spec.global_batch = global;
  spec.micro_batch = micro;
  return {spec, data};
}

/// Samples of each step of one rank, from `consumed` on, told by their first token.
std::vector<std::vector<std::int64_t>> samples_of(const Dataset& dataset, std::int64_t global, std::int64_t micro,
                                                  int data, int rank, std::int64_t train_samples,
                                                  std::int64_t consumed) {
  Loader loader(dataset, 0, schedule_for(global, micro, data), facts_for(data, rank), train_samples, consumed);
  std::vector<std::vector<std::int64_t>> steps;
  for (std::int64_t at = consumed; at + global <= train_samples; at += global) {
    const HostBatch& batch = loader.next();
    EXPECT_EQ(batch.first_sample, at);
    std::vector<std::int64_t>& samples = steps.emplace_back();
    for (std::int64_t row = 0; row < batch.shape.micro_batch * batch.shape.micro_batches; ++row) {
      samples.push_back(batch.ids[static_cast<std::size_t>(row * kSeq)]);
    }
  }
  return steps;
}

// D29: 10 samples, micro-batches of 2, 3 ranks: a step of 6, the other 4 are left out, on every rank alike.
TEST(Loader, EveryRankDoesAsManyStepsWhereverItStarts) {
  const Counting dataset;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(samples_of(dataset, 6, 2, 3, rank, 10, 0),
              (std::vector<std::vector<std::int64_t>>{{2 * rank, 2 * rank + 1}}));
    const auto whole = samples_of(dataset, 6, 2, 3, rank, 3 * 10, 0);
    ASSERT_EQ(whole.size(), 5U);
    for (std::size_t step = 0; step <= whole.size(); ++step) {
      const std::vector<std::vector<std::int64_t>> rest(whole.begin() + static_cast<std::ptrdiff_t>(step), whole.end());
      EXPECT_EQ(samples_of(dataset, 6, 2, 3, rank, 3 * 10, 6 * static_cast<std::int64_t>(step)), rest);
    }
  }
}

// C12: 12 samples on 4 ranks, stopped and taken up within the epoch: each sample once, whichever step the stop
// followed.
TEST(Loader, AStopWithinAnEpochRepeatsNothingOnAnyRank) {
  const Counting dataset;
  for (const std::int64_t stop : {0, 4, 8, 12}) {
    std::vector<std::int64_t> seen;
    for (int rank = 0; rank < 4; ++rank) {
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, stop}, {stop, std::int64_t{12}}}) {
        for (const auto& step : samples_of(dataset, 4, 1, 4, rank, end, begin)) {
          EXPECT_EQ(step.size(), 1U);
          seen.insert(seen.end(), step.begin(), step.end());
        }
      }
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})) << "stopped at " << stop;
  }
}

TEST(Loader, TheSamplesOfAStepDoNotDependOnTheRanks) {
  const Counting dataset;
  for (const auto& [micro, data] : {std::pair{12, 1}, {1, 1}, {2, 3}, {1, 12}, {3, 4}}) {
    std::map<std::size_t, std::vector<std::int64_t>> steps;
    for (int rank = 0; rank < data; ++rank) {
      const auto own = samples_of(dataset, 12, micro, data, rank, 40, 0);
      ASSERT_EQ(own.size(), 3U);
      for (std::size_t step = 0; step < own.size(); ++step)
        steps[step].insert(steps[step].end(), own[step].begin(), own[step].end());
    }
    for (auto& [step, samples] : steps) {
      std::sort(samples.begin(), samples.end());
      for (std::size_t k = 0; k < 12; ++k)
        EXPECT_EQ(samples[k], static_cast<std::int64_t>(12 * step + k)) << micro << " x " << data;
    }
  }
}

// A run may be continued at any sample, not only at multiples of a batch (another batch size before it).
TEST(Loader, GoesOnAtAnySample) {
  const Counting dataset;
  for (const std::int64_t consumed : {1, 5, 7, 13}) {
    const auto steps = samples_of(dataset, 4, 2, 2, 1, 30, consumed);
    ASSERT_FALSE(steps.empty());
    EXPECT_EQ(steps[0], (std::vector<std::int64_t>{consumed + 2, consumed + 3}));
  }
}

TEST(Loader, TargetsFollowTheIdsAndTheMask) {
  const Counting dataset;
  Loader loader(dataset, 0, schedule_for(2, 2, 1), facts_for(1, 0), 8, 4);
  const HostBatch& batch = loader.next();
  EXPECT_EQ(std::vector<std::int32_t>(batch.ids.begin(), batch.ids.begin() + 8),
            (std::vector<std::int32_t>{4, 5, 6, 7, 5, 6, 7, 8}));
  EXPECT_EQ(std::vector<std::int32_t>(batch.targets.begin(), batch.targets.begin() + 8),
            (std::vector<std::int32_t>{-1, 6, 7, 8, 6, -1, 8, 9}));
}

TEST(Loader, ReadsNoFurtherThanTheRun) {
  const Counting dataset;
  samples_of(dataset, 4, 4, 1, 0, 18, 0);
  EXPECT_EQ(dataset.last, 15);
}

TEST(Loader, WhatReadingThrowsComesOutWhereTheBatchIsTaken) {
  Counting dataset;
  dataset.broken = 7;
  Loader loader(dataset, 0, schedule_for(4, 4, 1), facts_for(1, 0), 40, 0);
  EXPECT_NO_THROW(loader.next());
  EXPECT_THROW(loader.next(), IoError);
  const Counting wide;  // T06: between the tokenizer's ids and the rows of the embedding, too
  Loader refusing(wide, 0, schedule_for(4, 4, 1), facts_for(1, 0), 2000, kVocab - 3);
  EXPECT_THROW(refusing.next(), IoError) << "an id outside the vocabulary";
}

}  // namespace
}  // namespace espalier::app
