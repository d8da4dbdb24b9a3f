#include <cmath>
#include <numbers>

#include "reference/common.hpp"
#include "reference/families.hpp"

namespace espalier::reference {
namespace {

template <class T>
T round_once(double x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return static_cast<float>(x);
  } else {
    return from_float<T>(round_to_odd(x));
  }
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
      const double u1 = (random_mantissa(words[0], words[1]) + 1.0) * 0x1p-53;  // (0, 1]: the logarithm stays finite
      const double u2 = random_mantissa(words[2], words[3]) * 0x1p-53;
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
      const double u = (element % 2 == 0 ? random_mantissa(words[0], words[1]) : random_mantissa(words[2], words[3])) * 0x1p-53;
      const T value = round_once<T>(low + (high - low) * u);
      return to_float(value) < high ? value : next_below(value);  // rounding may have reached the open end
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
