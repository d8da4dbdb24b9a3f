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
  // Further off it would turn logits into infinities, and these look like damaged weights.
  if (!(rule.repetition_penalty >= 0.001 && rule.repetition_penalty <= 1000)) {
    throw ConfigError("command line: --repetition-penalty: must be from 0.001 to 1000");
  }
}

std::span<const float> Sampler::penalised(std::span<const float> logits, std::span<const std::int32_t> seen) {
  if (rule_.repetition_penalty == 1 || seen.empty()) return logits;
  changed_.assign(logits.begin(), logits.end());
  done_.assign(logits.size(), 0);
  const auto penalty = static_cast<float>(rule_.repetition_penalty);
  for (const std::int32_t id : seen) {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at >= logits.size() || done_[at] != 0) continue;
    done_[at] = 1;
    changed_[at] = changed_[at] > 0 ? changed_[at] / penalty : changed_[at] * penalty;
  }
  return changed_;
}

/// Cuts the candidates by top_k and top_p, the likeliest first; of equals the lower id. Sorts no more than is kept.
void Sampler::keep_likeliest() {
  const auto likelier = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  const auto begin = candidates_.begin();
  if (rule_.top_k > 0 && rule_.top_k < std::ssize(candidates_)) {
    std::nth_element(begin, begin + rule_.top_k, candidates_.end(), likelier);
    candidates_.resize(static_cast<std::size_t>(rule_.top_k));
  }
  double total = 0;
  for (const auto& [weight, id] : candidates_) total += weight;
  double kept = 0;
  std::size_t count = 0, sorted = 0;
  while (count < candidates_.size() && (count == 0 || kept < rule_.top_p * total)) {
    if (count == sorted) {
      constexpr std::size_t kChunk = 256;
      const std::size_t end = std::min(candidates_.size(), sorted + std::max(kChunk, sorted));
      std::partial_sort(begin + static_cast<std::ptrdiff_t>(sorted), begin + static_cast<std::ptrdiff_t>(end),
                        candidates_.end(), likelier);
      sorted = end;
    }
    kept += candidates_[count++].first;
  }
  candidates_.resize(count);
}

std::int32_t Sampler::draw(std::span<const float> given, std::int64_t request, std::int64_t position,
                           std::span<const std::int32_t> seen) {
  const std::span<const float> logits = penalised(given, seen);
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
  if (rule_.top_k > 0 || rule_.top_p < 1) keep_likeliest();
  double kept = 0;
  for (const auto& [weight, id] : candidates_) kept += weight;

  double left = uniform(seed_, request, position) * kept;
  for (const auto& [weight, id] : candidates_) {
    left -= weight;
    if (left < 0) return id;
  }
  return candidates_.back().second;  // rounding used the last bit up
}

}  // namespace espalier::app
