#include <bit>
#include <cmath>

#include "espalier/error.hpp"
#include "espalier/kernels.hpp"

namespace espalier {

void alibi_slopes(std::int64_t heads, float* slopes) {
  ESPALIER_ASSERT(heads > 0);
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const double step = 8.0 / static_cast<double>(power);
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto exponent = h < power ? step * static_cast<double>(h + 1) : step * (static_cast<double>(h - power) + 0.5);
    slopes[h] = static_cast<float>(std::exp2(-exponent));
  }
}

}  // namespace espalier
