#include <algorithm>
#include <cmath>

#include "kernels.hpp"

namespace espalier::kernels_fused {
namespace {

// Elements of one sum of squares; the sums are added in ascending order.
constexpr std::int64_t kSquares = 65536;

bool skipped(const std::int32_t* skip) { return skip != nullptr && *skip != 0; }
float value_or_one(const float* factor) { return factor != nullptr ? *factor : 1.0f; }

void check(const View& view, std::int64_t n) {
  ESPALIER_ASSERT(view.dtype == DType::f32 && view.contiguous() && view.elements() == n);
}

/// Runs body(begin, end) over [0, n) in blocks of a fixed size.
template <class Body>
void run_flat(ThreadPool& pool, std::int64_t n, Body&& body) {
  if (n <= 0) return;
  pool.run((n + kItemElements - 1) / kItemElements, [&](std::int64_t item) {
    const std::int64_t begin = item * kItemElements;
    body(begin, std::min(n, begin + kItemElements));
  });
}

}  // namespace

void FusedUpdate::adamw(const AdamW& args, Stream&) {
  if (skipped(args.skip)) return;
  const std::int64_t n = args.master.elements();
  for (const View& view : {args.gradient, args.master, args.moment1, args.moment2}) check(view, n);
  const auto t = static_cast<double>(args.step);
  AdamWStep step;
  step.gradient = args.gradient.as<float>();
  step.master = args.master.as<float>();
  step.moment1 = args.moment1.as<float>();
  step.moment2 = args.moment2.as<float>();
  step.working = args.working.empty() ? nullptr : args.working.data;
  step.working_type = args.working.dtype;
  step.factor = value_or_one(args.factor);
  step.decay = static_cast<float>(args.lr * args.weight_decay);
  step.beta1 = static_cast<float>(args.beta1);
  step.one_minus_beta1 = static_cast<float>(1.0 - args.beta1);
  step.beta2 = static_cast<float>(args.beta2);
  step.one_minus_beta2 = static_cast<float>(1.0 - args.beta2);
  step.rate = static_cast<float>(args.lr / (1.0 - std::pow(args.beta1, t)));
  step.root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(args.beta2, t)));
  step.eps = static_cast<float>(args.eps);
  run_flat(pool_, n, [&](std::int64_t begin, std::int64_t end) { ops_.adamw(step, begin, end); });
}

void FusedUpdate::scale(const View& x, double a, const float* factor, const std::int32_t* skip, Stream&) {
  if (skipped(skip)) return;
  check(x, x.elements());
  const auto by = static_cast<float>(a * value_or_one(factor));
  run_flat(pool_, x.elements(),
           [&](std::int64_t begin, std::int64_t end) { ops_.scale(x.as<float>() + begin, by, end - begin); });
}

void FusedUpdate::lerp(const View& x, const View& y, double t, const float* factor, const std::int32_t* skip, Stream&) {
  if (skipped(skip)) return;
  check(x, x.elements());
  check(y, x.elements());
  const float by = value_or_one(factor);
  run_flat(pool_, x.elements(), [&](std::int64_t begin, std::int64_t end) {
    ops_.lerp(x.as<float>() + begin, y.as<float>() + begin, static_cast<float>(t), by, end - begin);
  });
}

void FusedUpdate::sign(const View& x, const View& dst, const std::int32_t* skip, Stream&) {
  if (skipped(skip)) return;
  check(x, x.elements());
  check(dst, x.elements());
  run_flat(pool_, x.elements(), [&](std::int64_t begin, std::int64_t end) {
    ops_.sign(x.as<float>() + begin, dst.as<float>() + begin, end - begin);
  });
}

void FusedUpdate::axpy(double a, const View& x, const View& y, const View& working, const float* factor,
                       const std::int32_t* skip, Stream&) {
  if (skipped(skip)) return;
  check(x, x.elements());
  check(y, x.elements());
  const auto by = static_cast<float>(a * value_or_one(factor));
  run_flat(pool_, x.elements(), [&](std::int64_t begin, std::int64_t end) {
    ops_.axpy(by, x.as<float>() + begin, y.as<float>() + begin, working.empty() ? nullptr : working.flat().at(0, begin),
              working.dtype, end - begin);
  });
}

void FusedUpdate::gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
                       const View& dst, Stream&) {
  matrix_.gemm(a, transpose_a, b, transpose_b, alpha, beta, dst);
}

void FusedUpdate::squared_sum(const View& x, double* slot, Stream&) {
  check(x, x.elements());
  const std::int64_t n = x.elements(), items = (n + kSquares - 1) / kSquares;
  if (partial_.size() < static_cast<std::size_t>(items)) partial_.resize(static_cast<std::size_t>(items));
  double* const partial = partial_.data();
  pool_.run(items, [&](std::int64_t item) {
    const std::int64_t begin = item * kSquares;
    partial[item] = ops_.squared_sum(x.as<float>() + begin, std::min(n, begin + kSquares) - begin);
  });
  for (std::int64_t item = 0; item < items; ++item) *slot += partial[item];
}

void FusedUpdate::verdict(const VerdictRule& rule, float* factor, std::int32_t* skip, Stream& stream) {
  // A few scalars in FP64: the reference's own, so that both providers decide alike.
  plain_.verdict(rule, factor, skip, stream);
}

}  // namespace espalier::kernels_fused
