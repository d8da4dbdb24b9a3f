#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "array_file.hpp"

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
/// Two arrays: the part of each position (2 bytes), and the counts of all parts before each block of positions, which
/// grows with the number of parts so that this is at most as much again (Megatron keeps 9 bytes per position).
/// Thread-safe once built.
class BlendOrder {
 public:
  /// @param weights  renormalised, at most 65,536.
  BlendOrder(std::span<const double> weights, std::int64_t positions);

  /// core's blend without weights and without a length: every sample of every part once. The weights are `sizes` over
  /// their sum, and a part leaves the choice when it is used up.
  static BlendOrder exhaustive(std::span<const std::int64_t> sizes);

  /// An order whose arrays are mapped. @param parts  uint16[positions]. @param counts  int64[blocks + 1][parts].
  static BlendOrder mapped(const ArrayFile& parts, const ArrayFile& counts);

  BlendOrder(const BlendOrder&) = delete;  // the pointers are into the arrays
  BlendOrder& operator=(const BlendOrder&) = delete;
  BlendOrder(BlendOrder&&) = default;
  BlendOrder& operator=(BlendOrder&&) = default;

  std::int64_t positions() const { return positions_; }
  /// 0 <= position < positions(), not checked. @throws IoError from here on if a mapped array is damaged there.
  int part(std::int64_t position) const {
    touch(parts_check_, parts_ + position);
    return parts_[position];
  }
  /// How often the part of this position came before it: the sample to take from it.
  std::int64_t sample(std::int64_t position) const;
  /// How many positions each part has.
  std::vector<std::int64_t> counts() const;

  /// The arrays as they are stored.
  const std::vector<std::uint16_t>& parts_array() const { return own_parts_; }
  const std::vector<std::int64_t>& counts_array() const { return own_counts_; }

  /// Positions a block for so many parts.
  static std::int64_t block_for(std::int64_t parts);

 private:
  BlendOrder() = default;
  BlendOrder(std::span<const double> weights, std::int64_t positions, std::span<const std::int64_t> limits);
  static void touch(const std::shared_ptr<const CheckedFile>& check, const void* place) {
    if (check) {
      check->touch(place);
    }
  }
  std::int64_t blocks() const { return (positions_ + block_ - 1) / block_; }

  std::int64_t positions_ = 0;
  std::int64_t part_count_ = 0;
  std::int64_t block_ = 1;
  std::vector<std::uint16_t> own_parts_;  // empty where the arrays are mapped
  std::vector<std::int64_t> own_counts_;
  const std::uint16_t* parts_ = nullptr;
  const std::int64_t* counts_ = nullptr;  // [blocks + 1][parts]; the last row is that of the whole
  std::shared_ptr<const CheckedFile> parts_check_, counts_check_;
};

}  // namespace espalier::data_indexed
