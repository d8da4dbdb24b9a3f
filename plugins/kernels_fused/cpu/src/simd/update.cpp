// What optimizers do to flat FP32 vectors.
#include "simd/table.hpp"
#include "simd/vector.hpp"

namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {
namespace {

template <class Store>
void adamw_with(const AdamWStep& s, int64_t begin, int64_t end, Store&& store_working) {
  const F factor = broadcast(s.factor), decay = broadcast(s.decay), beta1 = broadcast(s.beta1),
          rest1 = broadcast(s.one_minus_beta1);
  const F beta2 = broadcast(s.beta2), rest2 = broadcast(s.one_minus_beta2), rate = broadcast(s.rate),
          root = broadcast(s.root);
  const F eps = broadcast(s.eps);
  for_columns(end - begin, [&](int64_t i, auto at) {
    const int64_t c = begin + i;
    const F g = at.get(s.gradient + c) * factor;
    const F w = at.get(s.master + c);
    const F m = fma(beta1, at.get(s.moment1 + c), rest1 * g);
    const F v = fma(beta2, at.get(s.moment2 + c), rest2 * g * g);
    const F next = fnma(rate, m / fma(sqrt(v), root, eps), fnma(decay, w, w));
    at.put(s.moment1 + c, m);
    at.put(s.moment2 + c, v);
    at.put(s.master + c, next);
    store_working(c, at, next);
  });
}

void adamw(const AdamWStep& step, int64_t begin, int64_t end) {
  if (step.working == nullptr) {
    adamw_with(step, begin, end, [](int64_t, auto, F) {});
    return;
  }
  with_type(step.working_type, [&](auto t) {
    auto* working = static_cast<decltype(t)>(step.working);
    adamw_with(step, begin, end, [&](int64_t c, auto at, F x) { at.put(working + c, x); });
  });
}

void scale(float* x, float a, int64_t n) {
  const F by = broadcast(a);
  for_columns(n, [&](int64_t c, auto at) { at.put(x + c, at.get(x + c) * by); });
}

void lerp(float* x, const float* y, float t, float factor, int64_t n) {
  const F share = broadcast(t), by = broadcast(factor);
  for_columns(n, [&](int64_t c, auto at) {
    const F from = at.get(x + c);
    at.put(x + c, fma(share, at.get(y + c) * by - from, from));
  });
}

void sign(const float* x, float* dst, int64_t n) {
  for_columns(n, [&](int64_t c, auto at) {
    const F value = at.get(x + c);
    // NaN is neither and passes through value · 0.
    const F one = broadcast(1.0f);
    at.put(dst + c, select(greater(value, zero()), one, select(less(value, zero()), broadcast(-1.0f), value * zero())));
  });
}

void axpy(float a, const float* x, float* y, void* working, DType working_type, int64_t n) {
  const F by = broadcast(a);
  if (working == nullptr) {
    for_columns(n, [&](int64_t c, auto at) { at.put(y + c, fma(by, at.get(x + c), at.get(y + c))); });
    return;
  }
  with_type(working_type, [&](auto t) {
    auto* rounded = static_cast<decltype(t)>(working);
    for_columns(n, [&](int64_t c, auto at) {
      const F sum = fma(by, at.get(x + c), at.get(y + c));
      at.put(y + c, sum);
      at.put(rounded + c, sum);
    });
  });
}

double squared_sum(const float* x, int64_t n) {
  Doubles a = zero_doubles(), b = zero_doubles();
  int64_t c = 0;
  for (; c + 2 * kWidth <= n; c += 2 * kWidth) {
    a = add_square(a, load(x + c));
    b = add_square(b, load(x + c + kWidth));
  }
  for_columns(n - c, [&](int64_t i, auto at) { a = add_square(a, at.get(x + c + i)); });
  return reduce_add(a) + reduce_add(b);
}

}  // namespace

extern const UpdateOps kUpdateOps = {adamw, scale, lerp, sign, axpy, squared_sum};

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
