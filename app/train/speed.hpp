#pragma once

#include <cstdint>

#include "espalier/facts.hpp"

namespace espalier::app {

/// Floating-point operations of one training step over all ranks, multiply-add = 2, attention counted full, as BLOOM's log counts them:
/// 24 c B s L h² (1 + s / (6h) + V / (16 L h)), c = 3, or 4 with full recomputation.
/// Source: Narayanan et al. 2021, arXiv:2104.04473, eq. 3; 105.22 s a step on 384 GPUs gives the 149.02 TFLOPs of BLOOM's log.
constexpr double step_flops(const ModelShape& model, std::int64_t global_batch, bool full_recompute) {
  const auto h = static_cast<double>(model.hidden), s = static_cast<double>(model.seq_length);
  const auto layers = static_cast<double>(model.layers), vocab = static_cast<double>(model.vocab);
  const double factor = full_recompute ? 4 : 3;
  return 24 * factor * static_cast<double>(global_batch) * s * layers * h * h * (1 + s / (6 * h) + vocab / (16 * layers * h));
}

}  // namespace espalier::app
