#include "text/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "espalier/error.hpp"
#include "espalier/random.hpp"

namespace espalier::app {
namespace {

/// In [0, 1).
double uniform(std::uint64_t seed, std::int64_t request, std::int64_t position) {
  const auto at = static_cast<std::uint64_t>(position);
  const PhiloxCounter words = philox(make_key(seed, RandomUse::sampling, static_cast<std::uint64_t>(request)),
                                     {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), 0, 0});
  const std::uint64_t bits = (static_cast<std::uint64_t>(words[1]) << 32 | words[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

Sampler::Sampler(const SamplingRule& rule, std::uint64_t seed) : rule_(rule), seed_(seed) {
  if (!(rule.temperature >= 0)) throw ConfigError("command line: --temperature: must be 0 or more");
  if (rule.top_k < 0) throw ConfigError("command line: --top-k: must be 0 (all) or more");
  if (!(rule.top_p > 0 && rule.top_p <= 1)) throw ConfigError("command line: --top-p: must be above 0 and at most 1");
}

std::int32_t Sampler::draw(std::span<const float> logits, std::int64_t request, std::int64_t position) {
  float best = -INFINITY;
  std::int32_t likeliest = -1;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id])) {
      throw NumericsError("request " + std::to_string(request) + ", position " + std::to_string(position) +
                          ": the logits hold NaN; the weights are damaged");
    }
    if (logits[id] > best) {
      best = logits[id];
      likeliest = static_cast<std::int32_t>(id);
    }
  }
  if (likeliest < 0 || std::isinf(best)) {
    throw NumericsError("request " + std::to_string(request) + ", position " + std::to_string(position) +
                        ": the logits hold no finite maximum; the weights are damaged");
  }
  if (rule_.temperature == 0 || rule_.top_k == 1) return likeliest;

  candidates_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double weight = std::exp((static_cast<double>(logits[id]) - best) / rule_.temperature);
    candidates_.emplace_back(weight, static_cast<std::int32_t>(id));
  }
  std::ranges::sort(candidates_, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  if (rule_.top_k > 0 && static_cast<std::size_t>(rule_.top_k) < candidates_.size()) {
    candidates_.resize(static_cast<std::size_t>(rule_.top_k));
  }
  double total = 0;
  for (const auto& [weight, id] : candidates_) total += weight;
  double kept = 0;
  std::size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < rule_.top_p * total)) kept += candidates_[count++].first;
  candidates_.resize(count);

  double left = uniform(seed_, request, position) * kept;
  for (const auto& [weight, id] : candidates_) {
    left -= weight;
    if (left < 0) return id;
  }
  return candidates_.back().second;  // rounding used the last bit up
}

}  // namespace espalier::app
