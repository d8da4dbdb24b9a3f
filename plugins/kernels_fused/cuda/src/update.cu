#include "update.hpp"

#include <algorithm>
#include <cmath>

#include "batched_gemm.hpp"
#include "compat.cuh"
#include "element.cuh"
#include "espalier/error.hpp"
#include "flat.cuh"
#include "launch.cuh"
#include "scratch.hpp"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

/// What every operation may be told by device memory: to do nothing, and a factor.
struct Control {
  const float* factor_at;
  const std::int32_t* skip_at;

  __device__ bool idle() const { return skip_at != nullptr && *skip_at != 0; }
  __device__ float factor() const { return factor_at != nullptr ? *factor_at : 1.0f; }
};

/// Rounds a group of FP32 values to the working type; does nothing where there is no working copy.
template <class T, int kWidth>
__device__ void store_working(T* working, std::int64_t i, const Group<float, kWidth>& values) {
  if (working == nullptr) return;
  Group<T, kWidth> rounded;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) rounded.value[k] = from_float<T>(values.value[k]);
  store_group(working + i, rounded);
}

template <class T>
struct AdamWOperation : Control {
  static constexpr int kAhead = 1;
  const float* gradient;
  float* master;
  float* moment1;
  float* moment2;
  T* working;
  float keep, beta1, beta2, rest1, rest2, rate, root, eps;

  template <int kWidth>
  struct Items {
    Group<float, kWidth> gradients, weights, first, second;
  };

  __device__ float by() const { return factor(); }
  template <int kWidth>
  __device__ Items<kWidth> load(std::int64_t i) const {
    return {load_group<kWidth>(gradient + i), load_group<kWidth>(master + i), load_group<kWidth>(moment1 + i),
            load_group<kWidth>(moment2 + i)};
  }
  template <int kWidth>
  __device__ void store(std::int64_t i, Items<kWidth> items, float by) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float g = items.gradients.value[k] * by;
      const float m = beta1 * items.first.value[k] + rest1 * g;
      const float v = beta2 * items.second.value[k] + rest2 * g * g;
      items.first.value[k] = m;
      items.second.value[k] = v;
      items.weights.value[k] = items.weights.value[k] * keep - rate * m / (sqrtf(v) / root + eps);
    }
    store_group(moment1 + i, items.first);
    store_group(moment2 + i, items.second);
    store_group(master + i, items.weights);
    store_working(working, i, items.weights);
  }
};

struct ScaleOperation : Control {
  static constexpr int kAhead = 4;
  float* x;
  double a;

  __device__ float by() const { return static_cast<float>(a * factor()); }
  template <int kWidth>
  __device__ Group<float, kWidth> load(std::int64_t i) const {
    return load_group<kWidth>(x + i);
  }
  template <int kWidth>
  __device__ void store(std::int64_t i, Group<float, kWidth> values, float by) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values.value[k] *= by;
    store_group(x + i, values);
  }
};

/// A group of each of two vectors.
template <int kWidth>
struct Both {
  Group<float, kWidth> from, to;
};

struct LerpOperation : Control {
  static constexpr int kAhead = 2;
  float* x;
  const float* y;
  float weight;

  __device__ float by() const { return factor(); }
  template <int kWidth>
  __device__ Both<kWidth> load(std::int64_t i) const {
    return {load_group<kWidth>(y + i), load_group<kWidth>(x + i)};
  }
  template <int kWidth>
  __device__ void store(std::int64_t i, Both<kWidth> items, float by) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      items.to.value[k] += weight * (items.from.value[k] * by - items.to.value[k]);
    }
    store_group(x + i, items.to);
  }
};

struct SignOperation : Control {
  static constexpr int kAhead = 4;
  const float* x;
  float* dst;

  __device__ float by() const { return 1.0f; }
  template <int kWidth>
  __device__ Group<float, kWidth> load(std::int64_t i) const {
    return load_group<kWidth>(x + i);
  }
  template <int kWidth>
  __device__ void store(std::int64_t i, Group<float, kWidth> values, float) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      values.value[k] = static_cast<float>((values.value[k] > 0.0f) - (values.value[k] < 0.0f));
    }
    store_group(dst + i, values);
  }
};

template <class T>
struct AxpyOperation : Control {
  static constexpr int kAhead = 2;
  const float* x;
  float* y;
  T* working;
  double a;

  __device__ float by() const { return static_cast<float>(a * factor()); }
  template <int kWidth>
  __device__ Both<kWidth> load(std::int64_t i) const {
    return {load_group<kWidth>(x + i), load_group<kWidth>(y + i)};
  }
  template <int kWidth>
  __device__ void store(std::int64_t i, Both<kWidth> items, float by) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) items.to.value[k] += by * items.from.value[k];
    store_group(y + i, items.to);
    store_working(working, i, items.to);
  }
};

constexpr int kSumThreads = 256;
constexpr std::int64_t kSumBlock = 16384;  ///< elements of one partial sum
constexpr std::int64_t kSumRound = 2048;   ///< partial sums kept at a time

/// Adds the squares of neighbouring elements, one after another.
__device__ inline double add_squares(double total, const Group<float, kFlatGroup>& values) {
#pragma unroll
  for (int k = 0; k < kFlatGroup; ++k) {
    const double value = values.value[k];
    total += value * value;
  }
  return total;
}

/// Σ x² of one block. Thread t takes elements 4t … 4t + 3 of every 1,024, whatever x is aligned to. Of a whole block it
/// loads kSumAhead groups before it adds the first.
template <bool kWide>
__device__ double block_of_squares(const float* x, std::int64_t n) {
  constexpr std::int64_t kStep = kSumThreads * kFlatGroup;
  constexpr int kSumAhead = 8;
  static_assert(kSumBlock % (kStep * kSumAhead) == 0);
  double total = 0;
  std::int64_t i = threadIdx.x * kFlatGroup;
  if (kWide && n == kSumBlock) {
    for (; i < kSumBlock; i += kStep * kSumAhead) {
      Group<float, kFlatGroup> values[kSumAhead];
#pragma unroll
      for (int k = 0; k < kSumAhead; ++k) values[k] = load_group<kFlatGroup>(x + i + k * kStep);
#pragma unroll
      for (int k = 0; k < kSumAhead; ++k) total = add_squares(total, values[k]);
    }
    return total;
  }
  for (; i < n; i += kStep) {
    Group<float, kFlatGroup> values{};
#pragma unroll
    for (int k = 0; k < kFlatGroup; ++k) values.value[k] = i + k < n ? x[i + k] : 0.0f;
    total = add_squares(total, values);
  }
  return total;
}

/// One partial sum a block; a single one goes to the slot at once.
template <bool kWide>
__global__ void __launch_bounds__(kSumThreads)
    squares_kernel(const float* x, std::int64_t n, double* partial, double* slot) {
  SMEM_ARRAY(double, sums, kSumThreads);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSumBlock;
  sums[threadIdx.x] = block_of_squares<kWide>(x + first, n - first < kSumBlock ? n - first : kSumBlock);
  for (unsigned half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + half];
  }
  if (threadIdx.x != 0) return;
  if (slot != nullptr) {
    *slot = *slot + sums[0];
  } else {
    partial[blockIdx.x] = sums[0];
  }
}

/// start + x[0] + x[1] + … in this order: kSumRound values at a time are fetched together and added by thread 0, which
/// alone gets the result. Called by all threads of the block. @param staged  shared, kSumRound.
template <class Shared>
__device__ double ascending_sum(double start, const double* x, std::int64_t n, Shared staged) {
  for (std::int64_t first = 0; first < n; first += kSumRound) {
    const int count = n - first < kSumRound ? static_cast<int>(n - first) : static_cast<int>(kSumRound);
#pragma unroll 4
    for (int k = static_cast<int>(threadIdx.x); k < count; k += kSumThreads) staged[k] = x[first + k];
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 16
      for (int k = 0; k < count; ++k) start += static_cast<double>(staged[k]);
    }
    __syncthreads();
  }
  return start;
}

__global__ void __launch_bounds__(kSumThreads) add_partial_kernel(const double* partial, std::int64_t n, double* slot) {
  SMEM_ARRAY(double, staged, kSumRound);
  const double total = ascending_sum(*slot, partial, n, staged);
  if (threadIdx.x == 0) *slot = total;
}

__global__ void __launch_bounds__(kSumThreads) verdict_kernel(VerdictRule rule, float* factor, std::int32_t* skip) {
  SMEM_ARRAY(double, staged, kSumRound);
  const double squares = ascending_sum(0.0, rule.slots, rule.parameters, staged);
  if (threadIdx.x != 0) return;
  const double loss = rule.slots[rule.parameters];
  const double tokens = rule.slots[rule.parameters + 1];
  const double base = tokens == 0 ? 0.0 : rule.base * rule.nominal_tokens / tokens;
  const double norm = sqrt(squares) * base;
  const bool finite = std::isfinite(norm) && std::isfinite(loss);
  const double limited = rule.clip / (norm + 1e-6);
  const double clipped = rule.clip > 0 && limited < 1.0 ? limited : 1.0;
  *skip = finite ? 0 : 1;
  *factor = finite ? static_cast<float>(base * clipped) : 0.0f;
}

void check(const View& view, std::int64_t n) {
  ESPALIER_ASSERT(view.dtype == DType::f32 && view.contiguous() && view.elements() == n);
}

bool present(const View& view) { return view.data != nullptr && !view.empty(); }

}  // namespace

void CudaUpdate::adamw(const AdamW& args, Stream& stream) {
  const std::int64_t n = args.master.elements();
  for (const View& view : {args.gradient, args.master, args.moment1, args.moment2}) check(view, n);
  const auto step = static_cast<double>(args.step);
  with_element(present(args.working) ? args.working.dtype : DType::f32, [&](auto type) {
    using T = decltype(type);
    AdamWOperation<T> operation;
    operation.factor_at = args.factor;
    operation.skip_at = args.skip;
    operation.gradient = args.gradient.as<float>();
    operation.master = args.master.as<float>();
    operation.moment1 = args.moment1.as<float>();
    operation.moment2 = args.moment2.as<float>();
    operation.working = present(args.working) ? args.working.as<T>() : nullptr;
    operation.keep = static_cast<float>(1.0 - args.lr * args.weight_decay);
    operation.beta1 = static_cast<float>(args.beta1);
    operation.beta2 = static_cast<float>(args.beta2);
    operation.rest1 = static_cast<float>(1.0 - args.beta1);
    operation.rest2 = static_cast<float>(1.0 - args.beta2);
    operation.rate = static_cast<float>(args.lr / (1.0 - std::pow(args.beta1, step)));
    operation.root = static_cast<float>(std::sqrt(1.0 - std::pow(args.beta2, step)));
    operation.eps = static_cast<float>(args.eps);
    const bool all_wide = wide(operation.gradient) && wide(operation.master) && wide(operation.moment1) &&
                          wide(operation.moment2) && wide(operation.working);
    launch_flat("adamw", operation, n, all_wide, handle(stream));
  });
}

void CudaUpdate::scale(const View& x, double a, const float* factor, const std::int32_t* skip, Stream& stream) {
  check(x, x.elements());
  const ScaleOperation operation{{factor, skip}, x.as<float>(), a};
  launch_flat("update_scale", operation, x.elements(), wide(operation.x), handle(stream));
}

void CudaUpdate::lerp(const View& x, const View& y, double t, const float* factor, const std::int32_t* skip,
                      Stream& stream) {
  check(x, x.elements());
  check(y, x.elements());
  const LerpOperation operation{{factor, skip}, x.as<float>(), y.as<float>(), static_cast<float>(t)};
  launch_flat("lerp", operation, x.elements(), wide(operation.x) && wide(operation.y), handle(stream));
}

void CudaUpdate::sign(const View& x, const View& dst, const std::int32_t* skip, Stream& stream) {
  check(x, x.elements());
  check(dst, x.elements());
  const SignOperation operation{{nullptr, skip}, x.as<float>(), dst.as<float>()};
  launch_flat("sign", operation, x.elements(), wide(operation.x) && wide(operation.dst), handle(stream));
}

void CudaUpdate::axpy(double a, const View& x, const View& y, const View& working, const float* factor,
                      const std::int32_t* skip, Stream& stream) {
  check(x, x.elements());
  check(y, x.elements());
  with_element(present(working) ? working.dtype : DType::f32, [&](auto type) {
    using T = decltype(type);
    const AxpyOperation<T> operation{
        {factor, skip}, x.as<float>(), y.as<float>(), present(working) ? working.as<T>() : nullptr, a};
    const bool all_wide = wide(operation.x) && wide(operation.y) && wide(operation.working);
    launch_flat("axpy", operation, x.elements(), all_wide, handle(stream));
  });
}

void CudaUpdate::gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
                      const View& dst, Stream& stream) {
  if (dst.empty()) return;
  BatchedProduct product{a, b, dst, transpose_a, transpose_b};
  product.alpha = static_cast<float>(alpha);
  product.beta = static_cast<float>(beta);
  gemm_.multiply(product, stream);
}

std::size_t CudaUpdate::workspace() { return kSumRound * sizeof(double); }

void CudaUpdate::squared_sum(const View& x, double* slot, Stream& stream) {
  check(x, x.elements());
  const auto squares = wide(x.as<float>()) ? squares_kernel<true> : squares_kernel<false>;
  auto* partial = reinterpret_cast<double*>(scratch_.bytes(workspace(), stream));
  for (std::int64_t first = 0; first < x.elements(); first += kSumRound * kSumBlock) {
    const std::int64_t n = std::min(x.elements() - first, kSumRound * kSumBlock);
    const std::int64_t blocks = (n + kSumBlock - 1) / kSumBlock;
    const float* from = x.as<float>() + first;
    launch("squared_sum", squares, dim3(static_cast<unsigned>(blocks)), dim3(kSumThreads), 0, handle(stream), from, n,
           partial, blocks == 1 ? slot : nullptr);
    if (blocks == 1) continue;
    launch("squared_sum_add", add_partial_kernel, dim3(1), dim3(kSumThreads), 0, handle(stream), partial, blocks, slot);
  }
}

void CudaUpdate::verdict(const VerdictRule& rule, float* factor, std::int32_t* skip, Stream& stream) {
  launch("verdict", verdict_kernel, dim3(1), dim3(kSumThreads), 0, handle(stream), rule, factor, skip);
}

}  // namespace espalier::kernels_fused::cuda
