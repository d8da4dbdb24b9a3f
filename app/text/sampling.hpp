#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace espalier::app {

/// How the next token is drawn. Applied in this order: temperature, top_k, top_p.
struct SamplingRule {
  double temperature = 1.0;  ///< logits are divided by it; 0: always the likeliest token
  std::int64_t top_k = 0;    ///< only the k likeliest; 0: all
  double top_p =
      1.0;  ///< only the likeliest that together reach this probability (Holtzman et al. 2019, arXiv:1904.09751)
};

/// Draws tokens. The random number is Philox of (seed, request, position), so a request gets the same text whatever
/// runs beside it and whatever rank draws; ties go to the lower id.
class Sampler {
 public:
  /// @throws ConfigError for a negative temperature or top_k, or top_p outside (0, 1].
  Sampler(const SamplingRule& rule, std::uint64_t seed);

  /// @param logits  of the ids that may be drawn.
  /// @param position  of the token to be drawn, in its request.
  /// @throws NumericsError when no logit is finite, or one is NaN.
  std::int32_t draw(std::span<const float> logits, std::int64_t request, std::int64_t position);

 private:
  SamplingRule rule_;
  std::uint64_t seed_;
  std::vector<std::pair<double, std::int32_t>> candidates_;  // weight, id
};

}  // namespace espalier::app
