#pragma once

#include <cmath>
#include <cstdint>

#include "numpy_random.hpp"

namespace espalier::testing_support {

/// Standard normal numbers as numpy's RandomState draws them: polar method on doubles of 53 bits, the second value kept
/// for the next call.
class NumpyNormal {
 public:
  explicit NumpyNormal(std::uint32_t seed) : random_(seed) {}

  double next() {
    if (kept_) {
      kept_ = false;
      return second_;
    }
    for (;;) {
      const double x = 2.0 * uniform() - 1.0;
      const double y = 2.0 * uniform() - 1.0;
      const double r = x * x + y * y;
      if (r >= 1.0 || r == 0.0) continue;
      const double f = std::sqrt(-2.0 * std::log(r) / r);
      second_ = f * x;
      kept_ = true;
      return f * y;
    }
  }

 private:
  double uniform() {
    const double high = random_.word() >> 5;
    const double low = random_.word() >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }

  data_indexed::NumpyRandom random_;
  bool kept_ = false;
  double second_ = 0.0;
};

}  // namespace espalier::testing_support
