#include "blend.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

// A sample's number is found by counting within one block: 1024 comparisons of 16 bits are a few dozen instructions,
// and the counts kept per block cost less than a byte per position up to 128 parts.
constexpr std::int64_t kBlock = 1024;

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
    fail_config("weight", "the sum of the weights is not a finite number");
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

BlendOrder::BlendOrder(std::span<const double> weights, std::int64_t positions, std::span<const std::int64_t> limits)
    : parts_(static_cast<std::size_t>(positions)), counts_(weights.size(), 0) {
  const std::size_t parts = weights.size();
  if (parts == 0 || parts > 65536) {
    fail_config("data", "a blend of " + std::to_string(parts) + " parts; 1 to 65536 are possible");
  }
  block_counts_.reserve(parts * static_cast<std::size_t>((positions + kBlock - 1) / kBlock));
  std::vector<double> taken(parts, 0.0);  // counts as doubles: exact up to 2^53
  for (std::int64_t position = 0; position < positions; ++position) {
    if (position % kBlock == 0) {
      block_counts_.insert(block_counts_.end(), counts_.begin(), counts_.end());
    }
    const auto reached = static_cast<double>(std::max<std::int64_t>(position, 1));
    std::size_t best = 0;
    double largest = weights[0] * reached - taken[0];
    for (std::size_t part = 1; part < parts; ++part) {
      const double error = weights[part] * reached - taken[part];
      if (error > largest) {
        largest = error;
        best = part;
      }
    }
    parts_[static_cast<std::size_t>(position)] = static_cast<std::uint16_t>(best);
    taken[best] += 1.0;
    ++counts_[best];
    if (!limits.empty() && counts_[best] == limits[best]) {
      taken[best] = std::numeric_limits<double>::infinity();  // used up: its error is never the largest again
    }
  }
}

std::int64_t BlendOrder::sample(std::int64_t position) const {
  const std::int64_t block = position / kBlock;
  const std::uint16_t part = parts_[static_cast<std::size_t>(position)];
  const auto* const begin = parts_.data() + block * kBlock;
  // 16-bit counts keep the lanes of the vectorized loop full; a block is far below 65,536 positions.
  std::uint16_t before = 0;
  for (const auto* p = begin; p != parts_.data() + position; ++p) {
    before = static_cast<std::uint16_t>(before + (*p == part));
  }
  return block_counts_[static_cast<std::size_t>(block) * counts_.size() + part] + before;
}

}  // namespace espalier::data_indexed
