#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace espalier::data_indexed {

/// Weights over their sum, added up from left to right in doubles: what decides how much is asked of each part.
/// @throws ConfigError unless every weight is a positive finite number.
std::vector<double> normalised_weights(std::span<const double> weights);

/// Weights over their sum as numpy.sum adds up (pairwise, in eight running sums): what decides the order of the blend.
std::vector<double> renormalised_weights(std::span<const double> normalised);

/// Samples asked of each part for `samples_wanted` of the blend: ceil((N * w) * 1.005). The head-room is for the parts
/// only; the blend itself has `samples_wanted` samples.
std::vector<std::int64_t> samples_asked(std::span<const double> normalised, std::int64_t samples_wanted);

/// core's weights: over their sum as numpy.sum adds up, once. They decide requests and order.
/// @throws ConfigError as normalised_weights.
std::vector<double> core_weights(std::span<const double> weights);

/// core's samples of each part in a blend for `samples_wanted`: ceil(N * w). The blend has their sum.
std::vector<std::int64_t> core_targets(std::span<const double> weights, std::int64_t samples_wanted);

/// What each part is built with for them: ceil(target * 1.005).
std::vector<std::int64_t> core_requests(std::span<const std::int64_t> targets);

/// Which part gives each sample of a blend, and which of its samples.
///
/// Position i takes the part whose weight * max(i, 1) exceeds its count by most, the first one at ties. Each rounded
/// product is followed by a rounded difference: a fused multiply-add gives another order, so blend.cpp is compiled
/// without contraction.
///
/// Memory: 2 bytes per position, and the counts of all parts once per block of positions (Megatron keeps 9 bytes per
/// position). Thread-safe once built.
class BlendOrder {
 public:
  /// @param weights  renormalised, at most 65,536.
  BlendOrder(std::span<const double> weights, std::int64_t positions);

  /// core's blend without weights and without a length: every sample of every part once. The weights are `sizes` over
  /// their sum, and a part leaves the choice when it is used up.
  static BlendOrder exhaustive(std::span<const std::int64_t> sizes);

  std::int64_t positions() const { return static_cast<std::int64_t>(parts_.size()); }
  /// 0 <= position < positions(), not checked.
  int part(std::int64_t position) const { return parts_[static_cast<std::size_t>(position)]; }
  /// How often the part of this position came before it: the sample to take from it.
  std::int64_t sample(std::int64_t position) const;
  /// How many positions each part has.
  const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  BlendOrder(std::span<const double> weights, std::int64_t positions, std::span<const std::int64_t> limits);

  std::vector<std::uint16_t> parts_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> block_counts_;  // [block][part]: counts before the block
};

}  // namespace espalier::data_indexed
