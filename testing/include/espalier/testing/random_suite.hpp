#pragma once

#include <numbers>

#include "espalier/testing/kernel_case.hpp"

namespace espalier::testing {

class RandomSuite : public KernelSuite {
 protected:
  static constexpr PhiloxKey kKey{0x12345678, 0x9abcdef0};

  /// The two numbers in [0, 1) of an element's block.
  static std::array<double, 2> units(std::int64_t element) {
    const auto block = static_cast<std::uint64_t>(element) / 2;
    const auto w = philox(kKey, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0});
    return {static_cast<double>((std::uint64_t{w[1]} << 32 | w[0]) >> 11) * 0x1p-53,
            static_cast<double>((std::uint64_t{w[3]} << 32 | w[2]) >> 11) * 0x1p-53};
  }
};

TEST_P(RandomSuite, NormalByCounter) {
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, (std::int64_t{1} << 40) + 1}) {
    for (const std::int64_t n : {1, 2, 3, 65, 1000}) {
      Operand dst = working(1, n, {1, 0});
      kernels_.random->normal(dst, kKey, first, 0.5, 0.02, stream());
      std::vector<double> want;
      for (std::int64_t i = first; i < first + n; ++i) {
        const auto u = units(i);
        const double radius = std::sqrt(-2 * std::log(u[0] + 0x1p-53));
        const double angle = 2 * std::numbers::pi * u[1];
        want.push_back(0.5 + 0.02 * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
      }
      expect_close("normal", dst, want);
    }
  }
}

TEST_P(RandomSuite, UniformByCounter) {
  Operand dst = working(3, 333, {1, 2});
  kernels_.random->uniform(dst, kKey, 7, -0.25, 0.75, stream());
  std::vector<double> want;
  for (std::int64_t i = 7; i < 7 + 999; ++i) want.push_back(-0.25 + units(i)[static_cast<std::size_t>(i % 2)]);
  expect_close("uniform", dst, want);
}

TEST_P(RandomSuite, UniformNeverReachesTheUpperEnd) {
  Operand dst = working(1, 20000);
  kernels_.random->uniform(dst, kKey, 0, 0, 1, stream());
  for (const double x : dst.read()) {
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
  }
}

TEST_P(RandomSuite, ShardsArePartsOfTheWhole) {
  Operand whole = working(1, 1000), part = working(1, 501);
  kernels_.random->normal(whole, kKey, 0, 0, 1, stream());
  kernels_.random->normal(part, kKey, 333, 0, 1, stream());
  const std::vector<double> all = whole.read();
  EXPECT_EQ(part.read(), std::vector<double>(all.begin() + 333, all.begin() + 834));
}

}  // namespace espalier::testing
