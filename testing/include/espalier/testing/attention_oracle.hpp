#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "espalier/kernels.hpp"

namespace espalier::testing {

/// Attention in FP64 on dense values [batch, position, head, channel].
struct AttentionOracle {
  Attention shape;  ///< sizes, scale, dropout; no pointers
  std::vector<float> slopes;
  std::vector<std::int32_t> key_lengths;  ///< empty: all keys count
  std::vector<double> q, k, v, grad_out;
  std::vector<double> out, grad_q, grad_k, grad_v;

  std::size_t at(std::int64_t positions, std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) const {
    return static_cast<std::size_t>(((b * positions + s) * shape.heads + h) * shape.head_dim + d);
  }

  void forward() { run(false); }
  void forward_and_backward() { run(true); }

  /// Σ out · grad_out, whose gradient backward is.
  double objective() {
    forward();
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * grad_out[i];
    return sum;
  }

 private:
  void run(bool backward) {
    out.assign(q.size(), 0);
    grad_q.assign(q.size(), 0);
    grad_k.assign(k.size(), 0);
    grad_v.assign(v.size(), 0);
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        for (std::int64_t i = 0; i < shape.queries; ++i) row(b, h, i, backward);
      }
    }
  }

  void row(std::int64_t b, std::int64_t h, std::int64_t i, bool backward) {
    const std::int64_t query = shape.first_query + i;
    std::int64_t n = std::min(query + 1, shape.keys);
    if (!key_lengths.empty()) n = std::min<std::int64_t>(n, key_lengths[static_cast<std::size_t>(b)]);
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(n, 0));
    std::vector<double> p(size), mask(size, 1.0), dp(size);
    double largest = -INFINITY;
    double total = 0;
    for (std::size_t j = 0; j < size; ++j) {
      const auto key = static_cast<std::int64_t>(j);
      double dot = 0;
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        dot += q[at(shape.queries, b, i, h, d)] * k[at(shape.keys, b, key, h, d)];
      }
      const double slope = slopes.empty() ? 0 : slopes[static_cast<std::size_t>(h)];
      p[j] = dot * shape.scale + slope * static_cast<double>(key - query);
      if (p[j] > largest) largest = p[j];
      if (shape.dropout.active()) {
        mask[j] = shape.dropout.keeps_attention(b, h, query, key) ? shape.dropout.scale() : 0.0f;
      }
    }
    for (double& x : p) total += x = std::exp(x - largest);
    double mean = 0;
    for (std::size_t j = 0; j < size; ++j) {
      p[j] /= total;
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        const std::size_t value = at(shape.keys, b, static_cast<std::int64_t>(j), h, d);
        const std::size_t result = at(shape.queries, b, i, h, d);
        out[result] += p[j] * mask[j] * v[value];
        if (!backward) continue;
        dp[j] += grad_out[result] * v[value] * mask[j];
        grad_v[value] += p[j] * mask[j] * grad_out[result];
      }
      mean += p[j] * dp[j];
    }
    if (!backward) return;
    for (std::size_t j = 0; j < size; ++j) {
      const double slope = p[j] * (dp[j] - mean) * shape.scale;
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        const std::size_t key = at(shape.keys, b, static_cast<std::int64_t>(j), h, d);
        grad_q[at(shape.queries, b, i, h, d)] += slope * k[key];
        grad_k[key] += slope * q[at(shape.queries, b, i, h, d)];
      }
    }
  }
};

}  // namespace espalier::testing
