#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace espalier::app {

/// How the next token is drawn. Applied in this order: repetition_penalty, temperature, top_k, top_p.
struct SamplingRule {
  double temperature = 1.0;  ///< logits are divided by it; 0: always the likeliest token
  std::int64_t top_k = 0;    ///< only the k likeliest; 0: all
  double top_p =
      1.0;  ///< only the likeliest that together reach this probability (Holtzman et al. 2019, arXiv:1904.09751)
  /// Logits of tokens that the text has already are divided by it when positive, multiplied when negative, once however
  /// often they came: above 1 the text repeats itself less (Keskar et al. 2019, arXiv:1909.05858). 1: nothing.
  double repetition_penalty = 1.0;
};

/// Draws tokens. The random number is Philox of (seed, request, position), so a request gets the same text whatever
/// runs beside it and whatever rank draws; ties go to the lower id.
class Sampler {
 public:
  /// @throws ConfigError for a negative temperature or top_k, top_p outside (0, 1], or a penalty outside [0.001, 1000].
  Sampler(const SamplingRule& rule, std::uint64_t seed);

  /// @param logits  of the ids that may be drawn.
  /// @param position  of the token to be drawn, in its request.
  /// @param seen  tokens of the request so far, for the repetition penalty; any order.
  /// @throws NumericsError when no logit is finite, or one is NaN.
  std::int32_t draw(std::span<const float> logits, std::int64_t request, std::int64_t position,
                    std::span<const std::int32_t> seen = {});

 private:
  std::span<const float> penalised(std::span<const float> logits, std::span<const std::int32_t> seen);
  void keep_likeliest();

  SamplingRule rule_;
  std::uint64_t seed_;
  std::vector<float> changed_;
  std::vector<std::uint8_t> done_;
  std::vector<std::pair<double, std::int32_t>> candidates_;  // weight, id
};

}  // namespace espalier::app
