// Cross entropy over FP32 logits.
#include "simd/math.hpp"
#include "simd/table.hpp"

namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {
namespace {

const float* row_of(const View& logits, int64_t r) {
  return static_cast<const float*>(logits.data) + r * logits.row_stride;
}

void row_max(const View& logits, int64_t valid, float* row_max, int64_t begin, int64_t end) {
  const F lowest = broadcast(-__builtin_inff());
  for (int64_t r = begin; r < end; ++r) {
    const float* x = row_of(logits, r);
    F most[4] = {lowest, lowest, lowest, lowest};
    int64_t c = 0;
    for (; c + 4 * kWidth <= valid; c += 4 * kWidth) {
      for (int i = 0; i < 4; ++i) most[i] = max(most[i], load(x + c + i * kWidth));
    }
    for (; c + kWidth <= valid; c += kWidth) most[0] = max(most[0], load(x + c));
    if (c < valid) most[1] = max(most[1], select(first_lanes(valid - c), load_first(x + c, valid - c), lowest));
    row_max[r] = reduce_max(max(max(most[0], most[1]), max(most[2], most[3])));
  }
}

void exp_sum(const View& logits, int64_t valid, const float* row_max, float* sum_exp, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* x = row_of(logits, r);
    const F most = broadcast(row_max[r]);
    sum_exp[r] = reduce_add(
        sum_columns(valid, [&](F sum, int64_t c, auto at) { return sum + at.only(exp(at.get(x + c) - most)); }));
  }
}

template <class T>
void gradient_row_as(const float* logits, int64_t valid, float row_max, float factor, int64_t target, float scale,
                     T* grad, int64_t cols) {
  const F most = broadcast(row_max), by = broadcast(factor);
  // The target's own value is made apart, before its block may be overwritten in place.
  const float target_logit = target >= 0 ? logits[target] : 0.0f;
  for_columns(valid, [&](int64_t c, auto at) { at.put(grad + c, exp(at.get(logits + c) - most) * by); });
  for_columns(cols - valid, [&](int64_t c, auto at) { at.put(grad + valid + c, zero()); });
  if (target >= 0) {
    const F value = fma(exp(broadcast(target_logit) - most), by, broadcast(-scale));
    store_first(grad + target, value, 1);
  }
}

void gradient_row(const float* logits, int64_t valid, float row_max, float factor, int64_t target, float scale,
                  void* grad, DType grad_type, int64_t cols) {
  with_type(grad_type, [&](auto t) {
    gradient_row_as(logits, valid, row_max, factor, target, scale, static_cast<decltype(t)>(grad), cols);
  });
}

}  // namespace

extern const LossOps kLossOps = {row_max, exp_sum, gradient_row};

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
