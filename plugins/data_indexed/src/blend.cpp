#include "blend.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

// A sample's number is found by counting within one block: 1024 comparisons of 16 bits are a few dozen instructions.
constexpr std::int64_t kSmallestBlock = 1024;
constexpr std::int64_t kLargestBlock = 32768;

// Head-room over the request, so that rounding in the blend never runs past the end of a part.
constexpr double kHeadRoom = 1.005;

double pairwise_sum(const double* values, std::size_t count) {
  if (count < 8) {
    double sum = 0.0;
    for (std::size_t k = 0; k < count; ++k) {
      sum += values[k];
    }
    return sum;
  }
  if (count <= 128) {
    double sums[8];
    std::copy(values, values + 8, sums);
    std::size_t k = 8;
    for (; k < count - count % 8; k += 8) {
      for (std::size_t lane = 0; lane < 8; ++lane) {
        sums[lane] += values[k + lane];
      }
    }
    double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; k < count; ++k) {
      sum += values[k];
    }
    return sum;
  }
  std::size_t half = count / 2;
  half -= half % 8;
  return pairwise_sum(values, half) + pairwise_sum(values + half, count - half);
}

/// The part whose weight * reached - taken is largest, the first one at ties. Four lanes, each with the first largest
/// of its own, so that one comparison need not wait for the other: the loop is what a blend of many parts costs.
std::size_t largest_error(const double* weights, const double* taken, std::size_t parts, double reached) {
  constexpr std::size_t kLanes = 4;
  double best[kLanes];
  std::size_t where[kLanes];
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    best[lane] = -std::numeric_limits<double>::infinity();
    where[lane] = lane;
  }
  std::size_t part = 0;
  for (; part + kLanes <= parts; part += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double error = weights[part + lane] * reached - taken[part + lane];
      where[lane] = error > best[lane] ? part + lane : where[lane];
      best[lane] = error > best[lane] ? error : best[lane];
    }
  }
  std::size_t found = where[0];
  double largest = best[0];
  for (std::size_t lane = 1; lane < kLanes; ++lane) {
    if (best[lane] > largest || (best[lane] == largest && where[lane] < found)) {
      largest = best[lane];
      found = where[lane];
    }
  }
  for (; part < parts; ++part) {
    const double error = weights[part] * reached - taken[part];
    if (error > largest) {
      largest = error;
      found = part;
    }
  }
  return found;
}

std::vector<double> divided(std::span<const double> weights, double sum) {
  std::vector<double> result(weights.begin(), weights.end());
  for (double& weight : result) {
    weight /= sum;
  }
  return result;
}

}  // namespace

std::vector<double> normalised_weights(std::span<const double> weights) {
  double sum = 0.0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    if (!std::isfinite(weights[k]) || !(weights[k] > 0.0)) {
      fail_config("weight", "entry " + std::to_string(k) + " of the blend has the weight " +
                                std::to_string(weights[k]) +
                                "; weights are positive numbers, and a part without weight is left out");
    }
    sum += weights[k];
  }
  if (!std::isfinite(sum)) {
    fail_config("train", "the sum of the weights is not a finite number; write smaller ones, only their ratios count");
  }
  return divided(weights, sum);
}

std::vector<double> core_weights(std::span<const double> weights) {
  normalised_weights(weights);  // refuses what is no weight
  return renormalised_weights(weights);
}

std::vector<std::int64_t> core_targets(std::span<const double> weights, std::int64_t samples_wanted) {
  std::vector<std::int64_t> targets;
  targets.reserve(weights.size());
  for (const double weight : weights) {
    targets.push_back(static_cast<std::int64_t>(std::ceil(static_cast<double>(samples_wanted) * weight)));
  }
  return targets;
}

std::vector<std::int64_t> core_requests(std::span<const std::int64_t> targets) {
  std::vector<std::int64_t> requests;
  requests.reserve(targets.size());
  for (const std::int64_t target : targets) {
    requests.push_back(static_cast<std::int64_t>(std::ceil(static_cast<double>(target) * kHeadRoom)));
  }
  return requests;
}

std::vector<double> renormalised_weights(std::span<const double> normalised) {
  return divided(normalised, pairwise_sum(normalised.data(), normalised.size()));
}

std::vector<std::int64_t> samples_asked(std::span<const double> normalised, std::int64_t samples_wanted) {
  std::vector<std::int64_t> asked;
  asked.reserve(normalised.size());
  for (const double weight : normalised) {
    const double share = static_cast<double>(samples_wanted) * weight;
    asked.push_back(static_cast<std::int64_t>(std::ceil(share * kHeadRoom)));
  }
  return asked;
}

std::int64_t BlendOrder::block_for(std::int64_t parts) {
  std::int64_t block = kSmallestBlock;
  while (block < 4 * parts && block < kLargestBlock) {
    block *= 2;
  }
  return block;
}

BlendOrder::BlendOrder(std::span<const double> weights, std::int64_t positions) : BlendOrder(weights, positions, {}) {}

BlendOrder BlendOrder::exhaustive(std::span<const std::int64_t> sizes) {
  std::int64_t positions = 0;
  std::vector<double> weights;
  for (const std::int64_t size : sizes) {
    positions += size;
    weights.push_back(static_cast<double>(size));
  }
  return {divided(weights, static_cast<double>(positions)), positions, sizes};
}

BlendOrder BlendOrder::mapped(const ArrayFile& parts, const ArrayFile& counts) {
  BlendOrder order;
  order.positions_ = parts.array.elements();
  order.part_count_ = counts.array.shape()[1];
  order.block_ = block_for(order.part_count_);
  order.parts_ = reinterpret_cast<const std::uint16_t*>(parts.array.data());
  order.counts_ = reinterpret_cast<const std::int64_t*>(counts.array.data());
  order.parts_check_ = parts.checked;  // each keeps its mapping
  order.counts_check_ = counts.checked;
  return order;
}

BlendOrder::BlendOrder(std::span<const double> weights, std::int64_t positions, std::span<const std::int64_t> limits)
    : positions_(positions),
      part_count_(static_cast<std::int64_t>(weights.size())),
      block_(block_for(part_count_)),
      own_parts_(static_cast<std::size_t>(positions)) {
  const std::size_t parts = weights.size();
  if (parts == 0 || parts > 65536) {
    fail_config("data", "a blend of " + std::to_string(parts) + " parts; 1 to 65536 are possible");
  }
  own_counts_.reserve(parts * static_cast<std::size_t>(blocks() + 1));
  std::vector<std::int64_t> counts(parts, 0);
  std::vector<double> taken(parts, 0.0);  // counts as doubles: exact up to 2^53
  for (std::int64_t position = 0; position < positions; ++position) {
    if (position % block_ == 0) {
      own_counts_.insert(own_counts_.end(), counts.begin(), counts.end());
    }
    const auto reached = static_cast<double>(std::max<std::int64_t>(position, 1));
    const std::size_t best = largest_error(weights.data(), taken.data(), parts, reached);
    own_parts_[static_cast<std::size_t>(position)] = static_cast<std::uint16_t>(best);
    taken[best] += 1.0;
    ++counts[best];
    if (!limits.empty() && counts[best] == limits[best]) {
      taken[best] = std::numeric_limits<double>::infinity();  // used up: its error is never the largest again
    }
  }
  own_counts_.insert(own_counts_.end(), counts.begin(), counts.end());
  parts_ = own_parts_.data();
  counts_ = own_counts_.data();
}

std::vector<std::int64_t> BlendOrder::counts() const {
  const std::int64_t* const row = counts_ + blocks() * part_count_;
  touch(counts_check_, row);
  touch(counts_check_, row + part_count_ - 1);
  return {row, row + part_count_};
}

std::int64_t BlendOrder::sample(std::int64_t position) const {
  const std::int64_t block = position / block_;
  const std::uint16_t* const begin = parts_ + block * block_;
  touch(parts_check_, begin);
  touch(parts_check_, parts_ + position);
  const std::uint16_t part = parts_[position];
  // 16-bit counts keep the lanes of the vectorized loop full; a block has fewer than 65,536 positions.
  std::uint16_t before = 0;
  for (const std::uint16_t* p = begin; p != parts_ + position; ++p) {
    before = static_cast<std::uint16_t>(before + (*p == part));
  }
  const std::int64_t* const count = counts_ + block * part_count_ + part;
  touch(counts_check_, count);
  return *count + before;
}

}  // namespace espalier::data_indexed
