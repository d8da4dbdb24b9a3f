#include "espalier/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace espalier {
namespace {

/// binary16 decoded by the formula of the standard.
double decode_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(DType, EveryHalfDecodesAndReturns) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const Float16 half{static_cast<std::uint16_t>(i)};
    const float value = to_float(half);
    const double want = decode_half(half.bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(std::isnan(to_float(to_f16(value)))) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), want) << i;
    ASSERT_EQ(std::signbit(value), std::signbit(want)) << i;
    ASSERT_EQ(to_f16(value).bits, half.bits) << i;
  }
}

TEST(DType, EveryBFloat16Returns) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const BFloat16 x{static_cast<std::uint16_t>(i)};
    const float value = to_float(x);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(to_bf16(value)))) << i;
    } else {
      ASSERT_EQ(to_bf16(value).bits, x.bits) << i;
    }
  }
}

/// Between every two neighbours of the type: below the middle down, above it up, the tie to the even one.
template <class T>
void check_rounding(std::uint16_t last) {
  for (std::uint16_t bits = 0; bits < last; ++bits) {
    const T low{bits};
    const T high{static_cast<std::uint16_t>(bits + 1)};
    const float middle = 0.5f * (to_float(low) + to_float(high));  // exact: one more bit than the type has
    const float down = std::nextafter(middle, 0.0f);
    const float up = std::nextafter(middle, std::numeric_limits<float>::infinity());
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint16_t sign_bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(from_float<T>(sign * down).bits, low.bits | sign_bit) << bits;
      ASSERT_EQ(from_float<T>(sign * up).bits, high.bits | sign_bit) << bits;
      ASSERT_EQ(from_float<T>(sign * middle).bits, (bits % 2 == 0 ? low.bits : high.bits) | sign_bit) << bits;
    }
  }
}

TEST(DType, HalfRoundsToNearestEven) { check_rounding<Float16>(0x7bff); }

TEST(DType, BFloat16RoundsToNearestEven) {
  // The subnormal ones are left to the round trip: the middle of two of them may not have the neighbours used here.
  for (const std::uint32_t bits : {0x3f800000u, 0x00800000u, 0x7f000000u}) {
    for (std::uint32_t step = 0; step < 256; ++step) {
      const std::uint32_t low = bits + (step << 16);
      if (low >= 0x7f7f0000u) break;
      const auto rounded = [&](std::uint32_t tail) { return to_bf16(std::bit_cast<float>(low | tail)).bits; };
      const auto down = static_cast<std::uint16_t>(low >> 16);
      const auto up = static_cast<std::uint16_t>(down + 1);
      EXPECT_EQ(rounded(0x7fff), down);
      EXPECT_EQ(rounded(0x8001), up);
      EXPECT_EQ(rounded(0x8000), down % 2 == 0 ? down : up);
    }
  }
}

TEST(DType, HalfOverflowsAt65520) {
  EXPECT_EQ(to_float(to_f16(65504.0f)), 65504.0f);
  EXPECT_EQ(to_float(to_f16(std::nextafter(65520.0f, 0.0f))), 65504.0f);
  EXPECT_TRUE(std::isinf(to_float(to_f16(65520.0f))));
  EXPECT_EQ(to_float(to_f16(-65520.0f)), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isinf(to_float(to_f16(1e30f))));
}

TEST(DType, BFloat16OverflowsAboveItsLargest) {
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
  EXPECT_EQ(to_float(to_bf16(0x1.fep127f)), 0x1.fep127f);
}

TEST(DType, HalfKeepsSubnormalsAndTheSignOfZero) {
  EXPECT_EQ(to_float(to_f16(0x1p-24f)), 0x1p-24f);
  EXPECT_EQ(to_f16(0x1p-25f).bits, 0) << "a tie with zero";
  EXPECT_EQ(to_f16(0x1.000002p-25f).bits, 1);
  EXPECT_EQ(to_f16(-0.0f).bits, 0x8000);
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
}

TEST(DType, NanStaysNan) {
  // A payload in the lower bits alone must not become an infinity.
  const float low_payload = std::bit_cast<float>(0x7f800001u);
  for (const float nan :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(), low_payload}) {
    EXPECT_TRUE(std::isnan(to_float(to_f16(nan))));
    EXPECT_TRUE(std::isnan(to_float(to_bf16(nan))));
    EXPECT_EQ(std::signbit(to_float(to_bf16(nan))), std::signbit(nan));
  }
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(name_of(DType::f32), "f32");
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::u8), "u8");
  EXPECT_EQ(size_of(DType::f64), 8u);
  EXPECT_EQ(size_of(DType::i32), 4u);
  EXPECT_EQ(size_of(DType::f16), 2u);
  EXPECT_EQ(size_of(DType::u8), 1u);
}

TEST(DType, DispatchTakesFloatingTypesOnly) {
  std::size_t size = 0;
  const auto body = [&](auto type) { size = sizeof type; };
  EXPECT_TRUE(with_float_type(DType::bf16, body));
  EXPECT_EQ(size, 2u);
  EXPECT_TRUE(with_float_type(DType::f32, body));
  EXPECT_EQ(size, 4u);
  EXPECT_FALSE(with_float_type(DType::i32, body));
  EXPECT_FALSE(with_float_type(DType::f64, body));
}

}  // namespace
}  // namespace espalier
