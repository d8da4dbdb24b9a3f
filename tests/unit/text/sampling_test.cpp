#include "text/sampling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/error.hpp"

namespace espalier::app {
namespace {

const std::vector<float> kLogits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};

std::vector<double> shares(const SamplingRule& rule, int draws = 20000) {
  Sampler sampler(rule, 11);
  std::vector<double> seen(kLogits.size());
  for (int k = 0; k < draws; ++k) seen[static_cast<std::size_t>(sampler.draw(kLogits, 0, k))] += 1.0 / draws;
  return seen;
}

void expect_shares(const std::vector<double>& seen, const std::vector<double>& wanted) {
  // Four standard deviations of a share of 20,000 draws are at most 0.0142.
  for (std::size_t k = 0; k < wanted.size(); ++k) EXPECT_NEAR(seen[k], wanted[k], wanted[k] == 0 ? 0 : 0.0142) << k;
}

TEST(Sampling, DrawsFollowTheProbabilities) { expect_shares(shares({1.0, 0, 1.0}), {0.5, 0.3, 0.15, 0.05}); }

TEST(Sampling, TemperatureSharpensAndFlattens) {
  const double half = 0.25 + 0.09 + 0.0225 + 0.0025;
  expect_shares(shares({0.5, 0, 1.0}), {0.25 / half, 0.09 / half, 0.0225 / half, 0.0025 / half});
  expect_shares(shares({1e9, 0, 1.0}), {0.25, 0.25, 0.25, 0.25});
}

TEST(Sampling, TopKAndTopPCutTheTail) {
  expect_shares(shares({1.0, 2, 1.0}), {0.625, 0.375, 0, 0});
  expect_shares(shares({1.0, 0, 0.7}), {0.625, 0.375, 0, 0});  // 0.5 is below 0.7: the second belongs to it
  expect_shares(shares({1.0, 0, 0.4}), {1, 0, 0, 0});
  expect_shares(shares({1.0, 3, 0.6}), {0.625, 0.375, 0, 0});  // top_p counts within top_k: 0.5 / 0.95 < 0.6
}

TEST(Sampling, GreedyTakesTheLikeliestAndTheLowerIdOfEquals) {
  Sampler greedy({0.0, 0, 1.0}, 5);
  EXPECT_EQ(greedy.draw(std::vector<float>{1, 3, 2}, 0, 0), 1);
  EXPECT_EQ(greedy.draw(std::vector<float>{1, 3, 3}, 0, 0), 1);
  Sampler top1({1.0, 1, 1.0}, 5);
  EXPECT_EQ(top1.draw(std::vector<float>{1, 3, 3}, 0, 0), 1);
}

TEST(Sampling, KeyedBySeedRequestAndPosition) {
  const std::vector<float> flat(256, 0.0f);
  const auto text = [&](std::uint64_t seed, std::int64_t request) {
    Sampler sampler({1.0, 0, 1.0}, seed);
    std::vector<std::int32_t> ids;
    for (int position = 0; position < 32; ++position) ids.push_back(sampler.draw(flat, request, position));
    return ids;
  };
  EXPECT_EQ(text(1, 0), text(1, 0));
  EXPECT_NE(text(1, 0), text(2, 0));
  EXPECT_NE(text(1, 0), text(1, 1));
  // A draw depends on its own coordinates only, not on those before it.
  Sampler alone({1.0, 0, 1.0}, 1);
  EXPECT_EQ(alone.draw(flat, 0, 31), text(1, 0)[31]);
}

TEST(Sampling, DamagedLogitsAndWrongRulesAreErrors) {
  Sampler sampler({1.0, 0, 1.0}, 1);
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(sampler.draw(std::vector<float>{0, nan}, 0, 0), NumericsError);
  EXPECT_THROW(sampler.draw(std::vector<float>{0, infinity}, 0, 0), NumericsError);
  EXPECT_THROW(sampler.draw(std::vector<float>{-infinity, -infinity}, 0, 0), NumericsError);
  EXPECT_EQ(sampler.draw(std::vector<float>{-infinity, 0}, 0, 0), 1);
  EXPECT_THROW(Sampler({-1.0, 0, 1.0}, 1), ConfigError);
  EXPECT_THROW(Sampler({1.0, -1, 1.0}, 1), ConfigError);
  EXPECT_THROW(Sampler({1.0, 0, 0.0}, 1), ConfigError);
  EXPECT_THROW(Sampler({1.0, 0, 1.5}, 1), ConfigError);
}

// By hand: log 0.5 … are negative, so a penalty of 2 doubles them; positive logits are halved.
TEST(Sampling, TheRepetitionPenaltyCountsEachTokenOnce) {
  const std::vector<std::int32_t> seen = {0, 0, 0};
  Sampler greedy({0, 0, 1.0, 2.0}, 1);
  EXPECT_EQ(greedy.draw(kLogits, 0, 0, seen), 1);  // log 0.25 < log 0.3
  const std::vector<float> positive = {4.0f, 1.9f, -1.0f};
  EXPECT_EQ(greedy.draw(positive, 0, 0, seen), 0);  // 2 > 1.9: halved once, not three times
  EXPECT_EQ(greedy.draw(positive, 0, 0, std::vector<std::int32_t>{0, 1}), 0);
  EXPECT_EQ(greedy.draw(positive, 0, 0, std::vector<std::int32_t>{0, 2}), 0);
  EXPECT_EQ(Sampler({0, 0, 1.0, 2.2}, 1).draw(positive, 0, 0, seen), 1);
  EXPECT_THROW(Sampler({1.0, 0, 1.0, 0.0}, 1), ConfigError);
}

// The likeliest of many are found without sorting all of them.
TEST(Sampling, CutsOfALargeVocabularyAreThoseOfASort) {
  std::vector<float> logits(20000);
  for (std::size_t id = 0; id < logits.size(); ++id) logits[id] = static_cast<float>((id * 7919) % 20011) * 1e-3f;
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t id = 0; id < order.size(); ++id) order[id] = static_cast<std::int32_t>(id);
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  double total = 0, kept = 0;
  for (const float logit : logits) total += std::exp(logit - 20.01);
  std::size_t count = 0;
  while (kept < 0.7 * total) kept += std::exp(logits[static_cast<std::size_t>(order[count++])] - 20.01);
  EXPECT_GT(count, 1000u);
  Sampler by_k({1.0, 3, 1.0}, 5), by_p({1.0, 0, 0.7}, 5);
  for (int draw = 0; draw < 300; ++draw) {
    const auto place_of = [&](std::int32_t id) { return std::ranges::find(order, id) - order.begin(); };
    EXPECT_LT(place_of(by_k.draw(logits, 0, draw)), 3);
    EXPECT_LT(place_of(by_p.draw(logits, 0, draw)), static_cast<std::ptrdiff_t>(count));
  }
}

}  // namespace
}  // namespace espalier::app
