// Splits that are refused, epochs at their limits, positions beyond 32 bits, blends.
#include "sample_index.hpp"

#include <random>

#include "blend.hpp"
#include "espalier/error.hpp"
#include "parity/data/support.hpp"
#include "splits.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

TEST(Splits, TheConventionIsBigsciences) {  // D22
  EXPECT_EQ(split_borders(parse_split("90,5,5"), 10), (std::array<std::int64_t, 4>{0, 10, 10, 10}));
  EXPECT_EQ(split_borders(parse_split("50,50,0"), 5), (std::array<std::int64_t, 4>{0, 3, 5, 5}));
}

TEST(Splits, OfCoreWhenAskedFor) {  // D22
  EXPECT_EQ(core_borders(parse_split("90,5,5"), 10), (std::array<std::int64_t, 4>{0, 9, 10, 10}));
  EXPECT_EQ(core_borders(parse_split("50,50,0"), 5), (std::array<std::int64_t, 4>{0, 2, 5, 5}));
}

TEST(Splits, WhatIsNoSplitIsRefused) {  // D22
  for (const std::string text : {"", "abc", "1,2,3,4", "-1,2,0", "0,0,0", "nan,1,0", "inf,1,1", "1,,2", "1;2",
                                 "1e400,1,1", "90,5,5x", "0x10,1,1"}) {
    const auto message = message_of<ConfigError>([&] { parse_split(text); });
    EXPECT_NE(message.find("\"" + text + "\""), std::string::npos) << message;
  }
}

TEST(Splits, WhatIsNoRangeIsRefused) {
  for (const std::string text : {"", "0", "0:2", "-0.1:1", "0.5:0.4", "0:0.5:1", "a:b", "0:nan"}) {
    EXPECT_THROW(parse_range(text), ConfigError) << text;
  }
}

TEST(Epochs, ImpossibleRequestsAreErrors) {
  EXPECT_THROW(plan_epochs(0, 10, 8), ConfigError);
  EXPECT_THROW(plan_epochs(100, 10, 0), ConfigError);
  EXPECT_THROW(plan_epochs(100, -1, 8), ConfigError);
  EXPECT_THROW(plan_epochs(100, std::int64_t{1} << 62, 8), ConfigError);
  EXPECT_EQ(plan_epochs(1, 3, 1).epochs, 4);  // where bigscience asserts
  EXPECT_EQ(plan_epochs(100, 0, 8).epochs, 1);
}

TEST(Epochs, TotalsPassThirtyTwoBits) {
  // BLOOM's run: 366 billion tokens, read once and a bit.
  const EpochPlan plan = plan_epochs(341'000'000'000, 220'000'000, 2048);
  EXPECT_EQ(plan.epochs, 2);
  EXPECT_EQ(plan.samples, (2 * std::int64_t{341'000'000'000} - 1) / 2048);
  EXPECT_TRUE(plan.separate_last_epoch);
}

TEST(SampleIndexWidth, PositionsCrossThirtyTwoBits) {  // D15
  const std::vector<std::int32_t> sizes = {5, 3, 0, 9, 2, 4};
  const EpochPlan plan = plan_epochs(23, 10, 4);
  NumpyRandom random(7);
  const auto order = build_document_index(plan, {0, 6}, random);
  const auto* bytes = reinterpret_cast<const std::byte*>(sizes.data());
  const std::int64_t first = (std::int64_t{1} << 31) - 3;
  const int bits = sample_index_bits(first + static_cast<std::int64_t>(order.size()));
  EXPECT_EQ(bits, 64);
  EXPECT_EQ(sample_index_bits(first), 32);
  const auto narrow = std::get<0>(build_sample_index(plan, order, bytes, 6, "sizes", 32));
  const auto wide = std::get<1>(build_sample_index(plan, order, bytes, 6, "sizes", bits, first));
  ASSERT_EQ(wide.size(), narrow.size());
  bool crossed = false;
  for (std::size_t row = 0; row < wide.size() / 2; ++row) {
    EXPECT_EQ(wide[2 * row] - first, narrow[2 * row]);
    EXPECT_EQ(wide[2 * row + 1], narrow[2 * row + 1]);
    crossed = crossed || wide[2 * row] > std::int64_t{0x7fffffff};
    if (row > 0) {  // every sample has seq_length tokens up to the next one's first
      std::int64_t tokens = narrow[2 * row + 1] - narrow[2 * row - 1];
      for (auto p = narrow[2 * row - 2]; p < narrow[2 * row]; ++p) {
        tokens += sizes[static_cast<std::size_t>(order[static_cast<std::size_t>(p)])];
      }
      EXPECT_EQ(tokens, 4);
    }
  }
  EXPECT_TRUE(crossed);
}

TEST(SampleIndexWidth, ADocumentIndexThatDoesNotFitIsAnError) {
  const std::vector<std::int32_t> sizes = {5, 3};
  const auto* bytes = reinterpret_cast<const std::byte*>(sizes.data());
  const EpochPlan plan = plan_epochs(1008, 10, 4);
  const std::vector<std::int32_t> order = {1, 0};
  EXPECT_THROW(build_sample_index(plan, order, bytes, 2, "sizes", 32), IoError);
  const std::vector<std::int32_t> outside = {1, 2};
  EXPECT_THROW(build_sample_index(plan_epochs(8, 1, 4), outside, bytes, 2, "sizes", 32), IoError);
}

std::vector<double> order_weights(const std::vector<double>& weights) {
  return renormalised_weights(normalised_weights(weights));
}

TEST(Blend, WeightsMayHaveAnySum) {  // D23
  const BlendOrder a(order_weights({3, 1}), 5000);
  const BlendOrder b(order_weights({0.75, 0.25}), 5000);
  for (std::int64_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(a.part(i), b.part(i));
    ASSERT_EQ(a.sample(i), b.sample(i));
  }
}

TEST(Blend, UnevenWeightsStayWithinTheParts) {  // D24
  EXPECT_EQ(BlendOrder(order_weights({0.001, 0.999}), 1000).counts(), (std::vector<std::int64_t>{1, 999}));
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> weights(2 + random() % 30);
    for (double& weight : weights) {
      weight = std::exp(static_cast<double>(random() % 1000) / 100.0);
    }
    const auto once = normalised_weights(weights);
    const std::int64_t wanted = 1 + random() % 3000;
    const auto asked = samples_asked(once, wanted);
    const auto counts = BlendOrder(renormalised_weights(once), wanted).counts();
    for (std::size_t part = 0; part < weights.size(); ++part) {
      ASSERT_LE(counts[part], asked[part]);
    }
  }
}

TEST(Blend, ThreeHundredParts) {  // D27
  const BlendOrder order(order_weights(std::vector<double>(300, 1.0)), 3000);
  EXPECT_EQ(order.counts(), std::vector<std::int64_t>(300, 10));
  std::vector<std::int64_t> seen(300, 0);
  for (std::int64_t i = 0; i < 3000; ++i) {
    EXPECT_EQ(order.sample(i), seen[static_cast<std::size_t>(order.part(i))]++);
  }
}

TEST(Blend, TheRequestIsNotTheHeadRoom) {  // D28
  const auto once = normalised_weights(std::vector<double>{0.3, 0.7});
  EXPECT_EQ(samples_asked(once, 1000), (std::vector<std::int64_t>{302, 704}));
  const BlendOrder order(renormalised_weights(once), 1000);
  EXPECT_EQ(order.positions(), 1000);
  EXPECT_EQ(order.counts(), (std::vector<std::int64_t>{300, 700}));
}

TEST(Blend, WeightsThatAreNone) {
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(normalised_weights(std::vector<double>{1.0, bad}), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace espalier::data_indexed
