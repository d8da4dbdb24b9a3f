#include <bit>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "reference/common.hpp"
#include "reference/families.hpp"

namespace espalier::reference {
namespace {

/// Rounds once. A detour over FP32 would round twice, unless its last bit remembers that something was cut off (round
/// to odd).
template <class T>
T round_once(double x) {
  const auto nearest = static_cast<float>(x);
  if constexpr (sizeof(T) == sizeof(float)) {
    return nearest;
  } else {
    const double error = x - static_cast<double>(nearest);
    auto bits = std::bit_cast<std::uint32_t>(nearest);
    if (error != 0.0 && std::isfinite(nearest) && bits % 2 == 0) bits += (error > 0) == (nearest > 0) ? 1u : ~0u;
    return from_float<T>(std::bit_cast<float>(bits));
  }
}

/// The next smaller number of the type.
template <class T>
T below(T x) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(float), std::uint32_t, std::uint16_t>;
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  const auto bits = std::bit_cast<Bits>(x);
  if (bits == 0 || bits == kSign) return std::bit_cast<T>(static_cast<Bits>(kSign + 1));
  return std::bit_cast<T>(static_cast<Bits>((bits & kSign) != 0 ? bits + 1 : bits - 1));
}

/// The upper 53 bits of two words, low word first: an integer below 2^53.
double mantissa(std::uint32_t low, std::uint32_t high) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11);
}

PhiloxCounter block_of(PhiloxKey key, std::uint64_t element) {
  const std::uint64_t block = element / 2;
  return philox(key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0});
}

class ReferenceRandom final : public RandomKernels {
 public:
  explicit ReferenceRandom(ThreadPool& pool) : pool_(pool) {}

  void normal(const View& dst, PhiloxKey key, std::int64_t first, double mean, double std, Stream&) override {
    generate(dst, first, [=](auto type, std::uint64_t element) {
      const PhiloxCounter words = block_of(key, element);
      const double u1 = (mantissa(words[0], words[1]) + 1.0) * 0x1p-53;  // (0, 1]: the logarithm stays finite
      const double u2 = mantissa(words[2], words[3]) * 0x1p-53;
      const double radius = std::sqrt(-2.0 * std::log(u1));
      const double angle = 2.0 * std::numbers::pi * u2;
      const double z = radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
      return round_once<decltype(type)>(mean + std * z);
    });
  }

  void uniform(const View& dst, PhiloxKey key, std::int64_t first, double low, double high, Stream&) override {
    generate(dst, first, [=](auto type, std::uint64_t element) {
      using T = decltype(type);
      const PhiloxCounter words = block_of(key, element);
      const double u = (element % 2 == 0 ? mantissa(words[0], words[1]) : mantissa(words[2], words[3])) * 0x1p-53;
      const T value = round_once<T>(low + (high - low) * u);
      return to_float(value) < high ? value : below(value);  // rounding may have reached the open end
    });
  }

 private:
  /// Element (r, c) of dst is number first + r · cols + c.
  template <class Draw>
  void generate(const View& dst, std::int64_t first, Draw&& draw) {
    with_type(dst.dtype, [&](auto type) {
      for_blocks(pool_, dst.elements(), kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          dst.row<decltype(type)>(i / dst.cols)[i % dst.cols] = draw(type, static_cast<std::uint64_t>(first + i));
        }
      });
    });
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<RandomKernels> make_random(ThreadPool& pool) { return std::make_unique<ReferenceRandom>(pool); }

}  // namespace espalier::reference
