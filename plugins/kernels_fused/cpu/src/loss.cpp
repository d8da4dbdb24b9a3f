#include <cmath>

#include "kernels.hpp"

namespace espalier::kernels_fused {

Reason FusedLoss::supports(DType working) const {
  if (working == DType::f32 || working == DType::bf16 || working == DType::f16) return {};
  return "kernels_fused: no loss in " + std::string(name_of(working));
}

void FusedLoss::row_max(const View& logits, std::int64_t valid, const View& row_max, Stream&) {
  run_rows(pool_, logits.rows, logits.cols,
           [&](std::int64_t begin, std::int64_t end) { ops_.row_max(logits, valid, row_max.as<float>(), begin, end); });
}

void FusedLoss::exp_sum(const View& logits, std::int64_t valid, const View& row_max, const View& targets,
                        std::int64_t first_id, const View& sum_exp, const View& target_logit, Stream&) {
  const float* largest = row_max.as<float>();
  run_rows(pool_, logits.rows, logits.cols, [&](std::int64_t begin, std::int64_t end) {
    ops_.exp_sum(logits, valid, largest, sum_exp.as<float>(), begin, end);
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int32_t target = targets.as<std::int32_t>()[t];
      const std::int64_t column = target - first_id;
      const bool owned = target >= 0 && column >= 0 && column < valid;
      target_logit.as<float>()[t] = owned ? logits.row<float>(t)[column] - largest[t] : 0.0f;
    }
  });
}

void FusedLoss::gradient(const View& logits, std::int64_t valid, const View& row_max, const View& sum_exp,
                         const View& target_logit, const View& targets, std::int64_t first_id, float scale,
                         const View& loss, const View& grad, Stream&) {
  const float* total = sum_exp.as<float>();
  const auto* target = targets.as<std::int32_t>();
  if (loss.data != nullptr && !loss.empty()) {
    for (std::int64_t t = 0; t < logits.rows; ++t) {
      loss.as<float>()[t] = target[t] < 0 ? 0.0f : std::log(total[t]) - target_logit.as<float>()[t];
    }
  }
  if (grad.data == nullptr || grad.empty()) return;
  run_rows(pool_, logits.rows, logits.cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t column = target[t] - first_id;
      const bool owned = target[t] >= 0 && column >= 0 && column < valid;
      ops_.gradient_row(logits.row<float>(t), target[t] < 0 ? 0 : valid, row_max.as<float>()[t], scale / total[t],
                        owned ? column : -1, scale, grad.at(t, 0), grad.dtype, grad.cols);
    }
  });
}

void FusedLoss::accumulate(const View& loss, const View& targets, const View& slots, Stream&) {
  double total = 0, count = 0;
  for (std::int64_t t = 0; t < loss.elements(); ++t) {
    total += loss.as<float>()[t];
    count += targets.as<std::int32_t>()[t] >= 0 ? 1 : 0;
  }
  slots.as<double>()[0] += total;
  slots.as<double>()[1] += count;
}

}  // namespace espalier::kernels_fused
