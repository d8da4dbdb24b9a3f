#include "espalier/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/threads.hpp"

namespace espalier {
namespace {

TEST(Philox, KnownAnswers) {  // kat_vectors of Random123, philox4x32-10
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u}, {~0u, ~0u, ~0u, ~0u}), (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Keys, DifferBySeedUseAndSite) {
  std::set<PhiloxKey> keys;
  for (std::uint64_t seed : {0, 1, 42}) {
    for (const RandomUse use :
         {RandomUse::initial_weight, RandomUse::dropout, RandomUse::sampling, RandomUse::synthetic_data}) {
      for (std::uint64_t site = 0; site < 100; ++site) keys.insert(make_key(seed, use, site));
    }
  }
  EXPECT_EQ(keys.size(), 3u * 4u * 100u);
}

TEST(Dropout, KeepsTheWantedShareAndScalesIt) {
  const Dropout dropout{.p = 0.1f, .key = make_key(1, RandomUse::dropout, 0), .seq = 16};
  int kept = 0;
  const int rows = 400, channels = 250;
  for (int row = 0; row < rows; ++row) {
    for (int channel = 0; channel < channels; ++channel) kept += dropout.keeps_hidden(row, channel) ? 1 : 0;
  }
  EXPECT_NEAR(kept / 100000.0, 0.9, 0.004);  // four standard deviations
  EXPECT_FLOAT_EQ(dropout.scale(), 1 / 0.9f);
  EXPECT_FALSE(Dropout{}.active());
}

TEST(Dropout, IsAFunctionOfLogicalCoordinates) {
  const Dropout whole{.p = 0.5f, .key = {1, 2}, .first_sample = 10, .seq = 8};
  Dropout second_sample = whole;  // the same tokens seen by a rank whose block starts one sample later
  second_sample.first_sample = 11;
  Dropout later_rows = whole;  // the same tokens seen by a rank that holds rows 5 and up
  later_rows.first_token = 5;
  Dropout later_heads = whole;
  later_heads.first_head = 3;
  for (int channel = 0; channel < 64; ++channel) {
    EXPECT_EQ(whole.keeps_hidden(9, channel), second_sample.keeps_hidden(1, channel));
    EXPECT_EQ(whole.keeps_hidden(9, channel), later_rows.keeps_hidden(4, channel));
    EXPECT_EQ(whole.keeps_attention(1, 4, 7, channel), second_sample.keeps_attention(0, 4, 7, channel));
    EXPECT_EQ(whole.keeps_attention(1, 4, 7, channel), later_heads.keeps_attention(1, 1, 7, channel));
  }
}

class Distributions : public ::testing::Test {
 protected:
  View view() { return View::vector(values_.data(), static_cast<std::int64_t>(values_.size()), DType::f32); }
  Stream& stream() { return backend_->device().lane(Lane::compute); }
  double moment(double centre, int power) const {
    double sum = 0;
    for (const float x : values_) sum += std::pow(x - centre, power);
    return sum / static_cast<double>(values_.size());
  }

  std::unique_ptr<ThreadPool> pool_ = make_thread_pool(2);
  std::unique_ptr<Backend> backend_ = make_reference_backend(*pool_);
  std::vector<float> values_ = std::vector<float>(200000);
};

TEST_F(Distributions, MomentsOfTheNormal) {
  backend_->kernels().random->normal(view(), make_key(1, RandomUse::initial_weight, 2), 0, 0.5, 2.0, stream());
  const double n = static_cast<double>(values_.size());
  EXPECT_NEAR(moment(0, 1), 0.5, 4 * 2 / std::sqrt(n));
  EXPECT_NEAR(moment(0.5, 2), 4, 4 * 4 * std::sqrt(2 / n));
  EXPECT_NEAR(moment(0.5, 3) / 8, 0, 4 * std::sqrt(15 / n));
  EXPECT_NEAR(moment(0.5, 4) / 16, 3, 4 * std::sqrt(96 / n));
  int within = 0;
  double neighbours = 0;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    within += std::abs(values_[i] - 0.5) < 2.0 ? 1 : 0;
    if (i % 2 == 1) neighbours += (values_[i] - 0.5) * (values_[i - 1] - 0.5) / 4;
  }
  EXPECT_NEAR(within / n, 0.682689, 0.005);
  EXPECT_NEAR(neighbours / (n / 2), 0, 4 / std::sqrt(n / 2))
      << "the two numbers of a block must not depend on each other";
}

TEST_F(Distributions, MomentsOfTheUniform) {
  backend_->kernels().random->uniform(view(), make_key(1, RandomUse::initial_weight, 3), 0, -3, 1, stream());
  const double n = static_cast<double>(values_.size());
  EXPECT_NEAR(moment(0, 1), -1, 4 * std::sqrt(16 / 12.0 / n));
  EXPECT_NEAR(moment(-1, 2), 16 / 12.0, 0.02);
  for (const float x : values_) {
    ASSERT_GE(x, -3);
    ASSERT_LT(x, 1);
  }
}

TEST_F(Distributions, SixteenBitValuesAreRoundedOnce) {
  // The FP64 value lies just above a tie of BF16; rounded to FP32 first it would be the tie itself and go the other
  // way.
  std::vector<BFloat16> wide(1000);
  const View dst = View::vector(wide.data(), 1000, DType::bf16);
  const double tie = 1 + 0x1p-8;
  backend_->kernels().random->normal(dst, {1, 2}, 0, tie + 0x1p-40, 0.0, stream());
  for (const BFloat16 x : wide) ASSERT_EQ(to_float(x), 1 + 0x1p-7f);
  backend_->kernels().random->normal(dst, {1, 2}, 0, tie, 0.0, stream());
  for (const BFloat16 x : wide) ASSERT_EQ(to_float(x), 1.0f);
  backend_->kernels().random->normal(dst, {1, 2}, 0, -(1 + 3 * 0x1p-8 - 0x1p-40), 0.0, stream());
  for (const BFloat16 x : wide) ASSERT_EQ(to_float(x), -(1 + 0x1p-7f));
}

}  // namespace
}  // namespace espalier
