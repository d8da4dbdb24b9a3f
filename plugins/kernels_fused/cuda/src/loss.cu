#include "loss.hpp"

#include <string>
#include <type_traits>

#include "compat.cuh"
#include "element.cuh"
#include "espalier/error.hpp"
#include "launch.cuh"
#include "reduce.cuh"
#include "row_tiles.cuh"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

/// Logits as a kernel takes them.
struct Logits {
  const float* data;
  std::int64_t stride;
  std::int64_t valid;
  bool aligned;

  __device__ const float* row(std::int64_t t) const { return data + t * stride; }
};

/// Packs of a row that a thread loads before it uses the first. Each has an accumulator of its own.
constexpr int kAhead = 4;
using LogitPack = Pack<float>;

/// What the calling thread folds into its accumulators, combined: packs of its row kThreads apart, so that a block
/// reads side by side. Which columns go where depends on the number of valid ones alone.
template <int kThreads, class Fold, class Combine>
__device__ float fold_row(const Logits& logits, std::int64_t t, float neutral, Fold fold, Combine combine) {
  constexpr int kWidth = kPack<float>;
  constexpr std::int64_t kStep = kThreads * kWidth;
  const float* row = logits.row(t);
  float part[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) part[k] = neutral;
  std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * kWidth;
  for (; c + (kAhead - 1) * kStep + kWidth <= logits.valid; c += kAhead * kStep) {
    LogitPack packs[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) packs[k] = load_pack(row + c + k * kStep, kWidth, logits.aligned);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) part[k] = fold(part[k], packs[k][i]);
    }
  }
  for (; c < logits.valid; c += kStep) {
    const LogitPack pack = load_pack(row + c, logits.valid - c, logits.aligned);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (c + i < logits.valid) part[0] = fold(part[0], pack[i]);
    }
  }
  return combine(combine(part[0], part[1]), combine(part[2], part[3]));
}

/// A NaN is passed over: it comes back in the sum of exponentials.
template <int kThreads>
__global__ void __launch_bounds__(kThreads, 1) row_max_kernel(Logits logits, float* row_max) {
  SMEM_ARRAY(float, slots, 32);
  const std::int64_t t = blockIdx.x;
  const auto larger = [](float a, float b) { return fmaxf(a, b); };
  const float own = fold_row<kThreads>(logits, t, -INFINITY, larger, larger);
  const float most = block_max<kThreads>(own, slots);
  if (threadIdx.x == 0) row_max[t] = most;
}

/// Targets of the rows, and where a rank's columns begin among the ids.
struct Targets {
  const std::int32_t* ids;
  std::int64_t first_id;

  /// Column of a row's target; negative when it is masked or before the own columns.
  __device__ std::int64_t column(std::int64_t t) const { return ids[t] < 0 ? -1 : ids[t] - first_id; }
};

template <int kThreads>
__global__ void __launch_bounds__(kThreads, 1)
    exp_sum_kernel(Logits logits, const float* row_max, Targets targets, float* sum_exp, float* target_logit) {
  SMEM_ARRAY(float, slots, 32);
  const std::int64_t t = blockIdx.x;
  const float most = row_max[t];
  const float own = fold_row<kThreads>(
      logits, t, 0.0f, [most](float sum, float x) { return sum + expf(x - most); },
      [](float a, float b) { return a + b; });
  const float total = block_sum<kThreads>(own, slots);
  if (threadIdx.x != 0) return;
  sum_exp[t] = total;
  const std::int64_t column = targets.column(t);
  target_logit[t] = column >= 0 && column < logits.valid ? logits.row(t)[column] - most : 0.0f;
}

__global__ void __launch_bounds__(kTileThreads) loss_kernel(const float* sum_exp, const float* target_logit,
                                                            const std::int32_t* targets, std::int64_t n, float* loss) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  if (t < n) loss[t] = targets[t] < 0 ? 0.0f : logf(sum_exp[t]) - target_logit[t];
}

/// Where the gradient goes.
template <class T>
struct Gradient {
  T* data;
  std::int64_t stride;
  std::int64_t cols;
  unsigned pieces;  ///< blocks of a row
  bool aligned;     ///< packs of logits and gradient may be moved by one access
};

constexpr int kGradientWidth = 4;                             ///< columns of a pack
constexpr int kGradientStep = kTileThreads * kGradientWidth;  ///< from a thread's pack to its next
constexpr int kGradientPiece = kGradientStep * kAhead;        ///< columns of one block

/// grad = e^(x − most) · scale / total, less `scale` at the target. The quick exponential is good to a few units of the
/// last place of a probability.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    gradient_kernel(Logits logits, const float* row_max, const float* sum_exp, Targets targets, float scale,
                    Gradient<T> grad) {
  const std::int64_t t = blockIdx.x / grad.pieces;
  const std::int64_t begin = std::int64_t{blockIdx.x % grad.pieces} * kGradientPiece;
  const std::int64_t c = begin + threadIdx.x * kGradientWidth;
  const std::int64_t real = targets.ids[t] < 0 ? 0 : logits.valid;
  const float most = row_max[t], by = scale / sum_exp[t];
  const float* row = logits.row(t);
  T* to = grad.data + t * grad.stride;
  // Of the target from the thread's first column; far away when the block does not have it.
  const std::int64_t behind = targets.column(t) - begin;
  const bool here = behind >= 0 && behind < kGradientPiece;
  const int target = here ? static_cast<int>(behind) - static_cast<int>(threadIdx.x) * kGradientWidth : -1;
  const auto less_target = [&](float(&values)[kGradientWidth], int k) {
    if (!here) return;
#pragma unroll
    for (int i = 0; i < kGradientWidth; ++i) {
      if (target == k * kGradientStep + i) values[i] -= scale;
    }
  };
  if (grad.aligned && begin + kGradientPiece <= real) {
    Pack<float, kGradientWidth> packs[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      packs[k] = load_pack<float, kGradientWidth>(row + c + k * kGradientStep, kGradientWidth, true);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      float values[kGradientWidth];
#pragma unroll
      for (int i = 0; i < kGradientWidth; ++i) values[i] = __expf(packs[k][i] - most) * by;
      less_target(values, k);
      store_pack(to + c + k * kGradientStep, Pack<T, kGradientWidth>::of(values), kGradientWidth, true);
    }
    return;
  }
#pragma unroll 1
  for (int k = 0; k < kAhead; ++k) {
    const std::int64_t at = c + k * kGradientStep;
    if (at >= grad.cols) return;
    const auto pack = load_pack<float, kGradientWidth>(row + at, real - at, grad.aligned);
    float values[kGradientWidth];
#pragma unroll
    for (int i = 0; i < kGradientWidth; ++i) values[i] = at + i < real ? __expf(pack[i] - most) * by : 0.0f;
    if (real > 0) less_target(values, k);
    store_pack(to + at, Pack<T, kGradientWidth>::of(values), grad.cols - at, grad.aligned);
  }
}

constexpr int kSumThreads = 256;

/// One block. Its threads fetch a loss each while thread 0 adds those fetched before.
__global__ void __launch_bounds__(kSumThreads)
    accumulate_kernel(const float* loss, const std::int32_t* targets, std::int64_t n, double* slots) {
  SMEM_ARRAY(double, staged, 2 * kSumThreads);
  SMEM_ARRAY(double, counts, 32);
  double total = 0, count = 0;
  int side = 0;
  if (threadIdx.x < n) staged[threadIdx.x] = static_cast<double>(loss[threadIdx.x]);
  for (std::int64_t first = 0; first < n; first += kSumThreads, side = kSumThreads - side) {
    const std::int64_t own = first + threadIdx.x, next = own + kSumThreads;
    if (own < n && targets[own] >= 0) count += 1;
    const double ahead = next < n ? static_cast<double>(loss[next]) : 0.0;
    __syncthreads();  // this side is filled, the other has been added
    staged[kSumThreads - side + threadIdx.x] = ahead;
    if (threadIdx.x == 0) {
      const int filled = n - first < kSumThreads ? static_cast<int>(n - first) : kSumThreads;
#pragma unroll 8
      for (int i = 0; i < filled; ++i) total += static_cast<double>(staged[side + i]);
    }
  }
  count = block_sum<kSumThreads>(count, counts);
  if (threadIdx.x != 0) return;
  slots[0] += total;
  slots[1] += count;
}

/// Calls body with the number of threads of a row's block, as a constant: enough for the row, and no more. Two blocks
/// of 512 share a multiprocessor, so that one loads while the other ends.
template <class Body>
void with_threads(std::int64_t columns, Body&& body) {
  if (columns <= 512) {
    body(std::integral_constant<int, 32>{});
  } else if (columns <= 16384) {
    body(std::integral_constant<int, 256>{});
  } else {
    body(std::integral_constant<int, 512>{});
  }
}

Logits logits_of(const View& logits, std::int64_t valid) {
  ESPALIER_ASSERT(logits.dtype == DType::f32 && valid <= logits.cols && logits.rows < std::int64_t{1} << 31);
  return {logits.as<const float>(), logits.row_stride, valid, aligned_rows(logits)};
}

bool present(const View& view) { return view.data != nullptr && !view.empty(); }

}  // namespace

Reason CudaLoss::supports(DType working) const {
  if (working == DType::f32 || working == DType::bf16 || working == DType::f16) return {};
  return "kernels_fused_cuda: no loss in " + std::string(name_of(working));
}

void CudaLoss::row_max(const View& logits, std::int64_t valid, const View& row_max, Stream& stream) {
  if (logits.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(logits.rows));
  with_threads(logits.cols, [&](auto threads) {
    launch("row_max", row_max_kernel<threads()>, grid, dim3(threads()), 0, handle(stream), logits_of(logits, valid),
           row_max.as<float>());
  });
}

void CudaLoss::exp_sum(const View& logits, std::int64_t valid, const View& row_max, const View& targets,
                       std::int64_t first_id, const View& sum_exp, const View& target_logit, Stream& stream) {
  if (logits.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(logits.rows));
  with_threads(logits.cols, [&](auto threads) {
    launch("exp_sum", exp_sum_kernel<threads()>, grid, dim3(threads()), 0, handle(stream), logits_of(logits, valid),
           row_max.as<const float>(), Targets{targets.as<const std::int32_t>(), first_id}, sum_exp.as<float>(),
           target_logit.as<float>());
  });
}

void CudaLoss::gradient(const View& logits, std::int64_t valid, const View& row_max, const View& sum_exp,
                        const View& target_logit, const View& targets, std::int64_t first_id, float scale,
                        const View& loss, const View& grad, Stream& stream) {
  if (present(loss)) {
    const std::int64_t n = logits.rows;
    const dim3 grid(static_cast<unsigned>((n + kTileThreads - 1) / kTileThreads));
    launch("loss", loss_kernel, grid, dim3(kTileThreads), 0, handle(stream), sum_exp.as<const float>(),
           target_logit.as<const float>(), targets.as<const std::int32_t>(), n, loss.as<float>());
  }
  if (!present(grad)) return;
  ESPALIER_ASSERT(grad.rows == logits.rows && grad.cols == logits.cols);
  with_element(grad.dtype, [&](auto type) {
    using T = decltype(type);
    const auto pieces = static_cast<unsigned>((grad.cols + kGradientPiece - 1) / kGradientPiece);
    ESPALIER_ASSERT(grad.rows * pieces < std::int64_t{1} << 31);
    const Gradient<T> to{grad.as<T>(), grad.row_stride, grad.cols, pieces, aligned_rows(logits, grad)};
    launch("loss_gradient", gradient_kernel<T>, dim3(static_cast<unsigned>(grad.rows) * pieces), dim3(kTileThreads), 0,
           handle(stream), logits_of(logits, valid), row_max.as<const float>(), sum_exp.as<const float>(),
           Targets{targets.as<const std::int32_t>(), first_id}, scale, to);
  });
}

void CudaLoss::accumulate(const View& loss, const View& targets, const View& slots, Stream& stream) {
  ESPALIER_ASSERT(slots.dtype == DType::f64 && loss.elements() == targets.elements());
  if (loss.empty()) return;
  launch("loss_accumulate", accumulate_kernel, dim3(1), dim3(kSumThreads), 0, handle(stream), loss.as<const float>(),
         targets.as<const std::int32_t>(), loss.elements(), slots.as<double>());
}

}  // namespace espalier::kernels_fused::cuda
