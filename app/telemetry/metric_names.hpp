#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "espalier/monitor.hpp"

/// Names of the metrics of a step, as records and log lines have them (docs/vocabulary.md).
namespace espalier::app::metric {

inline constexpr std::string_view kLoss = "lm loss";
inline constexpr std::string_view kLearningRate = "learning rate";
inline constexpr std::string_view kGlobalBatch = "global batch size";
inline constexpr std::string_view kGradNorm = "grad norm";
inline constexpr std::string_view kLossScale = "loss scale";
inline constexpr std::string_view kSkipped = "skipped steps";
inline constexpr std::string_view kNan = "nan steps";
inline constexpr std::string_view kApplied = "applied steps";
inline constexpr std::string_view kStepTime = "step time (s)";
inline constexpr std::string_view kSamplesPerSecond = "samples per second";
inline constexpr std::string_view kTokensPerSecond = "tokens per second";
inline constexpr std::string_view kTflops = "TFLOP/s per rank";

/// The value under `name`, or `missing`.
inline double find(std::span<const Metric> metrics, std::string_view name, double missing) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  return missing;
}

}  // namespace espalier::app::metric
