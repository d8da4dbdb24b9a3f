#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "espalier/kernels.hpp"

namespace espalier {
namespace {

std::vector<float> slopes(std::int64_t heads) {
  std::vector<float> all(static_cast<std::size_t>(heads));
  alibi_slopes(heads, all.data());
  return all;
}

using ::testing::ElementsAre;
using ::testing::FloatNear;

TEST(AlibiSlopes, AsPublished) {  // K01
  EXPECT_THAT(slopes(1), ElementsAre(0x1p-8f));
  EXPECT_THAT(slopes(3), ElementsAre(0.0625f, 0.00390625f, 0.25f));
  EXPECT_THAT(slopes(4), ElementsAre(0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f));
  EXPECT_THAT(slopes(6), ElementsAre(0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f, 0x1p-1f, 0x1p-3f));
  EXPECT_THAT(slopes(12), ElementsAre(0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f,
                                      FloatNear(0.707107f, 1e-6f), FloatNear(0.353553f, 1e-6f),
                                      FloatNear(0.176777f, 1e-6f), FloatNear(0.088388f, 1e-6f)));
  const std::vector<float> many = slopes(112);
  EXPECT_NEAR(many.front(), 0.917004, 1e-6);
  EXPECT_NEAR(many.back(), 0.01631678, 1e-8);
}

TEST(AlibiSlopes, APowerOfTwoIsOneGeometricSeries) {
  for (const std::int64_t heads : {1, 2, 8, 16, 64, 128}) {
    const std::vector<float> all = slopes(heads);
    for (std::size_t h = 0; h < all.size(); ++h) {
      EXPECT_FLOAT_EQ(all[h],
                      static_cast<float>(std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads))));
    }
  }
}

}  // namespace
}  // namespace espalier
