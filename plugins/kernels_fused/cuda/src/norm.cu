// Layer norm. A row belongs to a team of kThreads threads: a warp for short rows, several of which share a block, else
// a block. A thread holds kPacks packs of 16 bytes of its row in registers, so that the row is read once; rows that are
// too long for that are read again from memory in each pass (kPacks = 0). Which thread has which element, and so the
// order of every sum, follows from the hidden size alone.
#include <algorithm>
#include <string>
#include <type_traits>

#include "element.cuh"
#include "launch.cuh"
#include "norm.hpp"
#include "reduce.cuh"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

constexpr int kRowsOfWarps = 4;  // rows in a block when a warp does a row

/// The packs of one row that this thread has.
template <class T, int kThreads, int kPacks>
class Row {
 public:
  static constexpr int kStep = kThreads * kPack<T>;

  __device__ __forceinline__ Row(const T* data, std::int64_t hidden, bool aligned)
      : data_(data), hidden_(hidden), aligned_(aligned) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) held_[i] = load_pack(data + at(i), hidden - at(i), aligned);
  }

  /// Calls body(pack, first column, columns that exist from there) for each pack with at least one column.
  template <class Body>
  __device__ __forceinline__ void each(Body&& body) const {
    if constexpr (kPacks > 0) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (at(i) < hidden_) body(held_[i], at(i), hidden_ - at(i));
      }
    } else {
      for (std::int64_t column = at(0); column < hidden_; column += kStep) {
        body(load_pack(data_ + column, hidden_ - column, aligned_), column, hidden_ - column);
      }
    }
  }

 private:
  __device__ static __forceinline__ std::int64_t at(int i) {
    return static_cast<std::int64_t>(threadIdx.x) * kPack<T> + static_cast<std::int64_t>(i) * kStep;
  }

  const T* data_;
  std::int64_t hidden_;
  bool aligned_;
  Pack<T> held_[kPacks > 0 ? kPacks : 1];
};

template <class T>
struct Forward {
  const T* src;
  const T* weight;
  const T* bias;
  T* dst;
  float* mean;  // null: not wanted
  float* rstd;
  std::int64_t rows, hidden, src_stride, dst_stride;
  float eps;
  bool aligned;
};

template <class T, int kThreads, int kPacks>
__global__ void __launch_bounds__(kThreads == 32 ? kRowsOfWarps * 32 : kThreads) layernorm_forward(Forward<T> args) {
  SMEM_ARRAY(float, slots, 32);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= args.rows) return;  // a whole team
  const float n = static_cast<float>(args.hidden);
  const Row<T, kThreads, kPacks> src(args.src + row * args.src_stride, args.hidden, args.aligned);
  float sum = 0;
  src.each([&](const Pack<T>& x, std::int64_t, std::int64_t) {
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) sum += x[k];  // zeros beyond the row
  });
  const float mean = block_sum<kThreads>(sum, slots) / n;
  float squares = 0;
  src.each([&](const Pack<T>& x, std::int64_t, std::int64_t left) {
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) {
      const float d = k < left ? x[k] - mean : 0.0f;
      squares += d * d;
    }
  });
  const float rstd = 1.0f / sqrtf(block_sum<kThreads>(squares, slots) / n + args.eps);
  if (threadIdx.x == 0) {
    if (args.mean != nullptr) args.mean[row] = mean;
    if (args.rstd != nullptr) args.rstd[row] = rstd;
  }
  T* const dst = args.dst + row * args.dst_stride;
  src.each([&](const Pack<T>& x, std::int64_t column, std::int64_t left) {
    const Pack<T> weight = load_pack(args.weight + column, left, args.aligned);
    const Pack<T> bias = load_pack(args.bias + column, left, args.aligned);
    Pack<T> y;
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) y.set(k, (x[k] - mean) * rstd * weight[k] + bias[k]);
    store_pack(dst + column, y, left, args.aligned);
  });
}

/// Calls body(threads of a team, packs a thread holds) with the constants for the hidden size.
template <class T, class Body>
void with_team(std::int64_t hidden, Body&& body) {
  const std::int64_t packs = (hidden + kPack<T> - 1) / kPack<T>;
  if (packs <= 32) return body(Constant<32>{}, Constant<1>{});
  if (packs <= 128) return body(Constant<32>{}, Constant<4>{});
  if (packs <= 1024) return body(Constant<256>{}, Constant<4>{});
  if (packs <= 4096) return body(Constant<512>{}, Constant<8>{});
  return body(Constant<512>{}, Constant<0>{});
}

template <int kThreads>
dim3 team_block() {
  return kThreads == 32 ? dim3(32, kRowsOfWarps) : dim3(kThreads);
}
template <int kThreads>
dim3 team_grid(std::int64_t rows) {
  return kThreads == 32 ? dim3(static_cast<unsigned>((rows + kRowsOfWarps - 1) / kRowsOfWarps))
                        : dim3(static_cast<unsigned>(rows));
}

}  // namespace

Reason CudaNorm::supports(DType working, std::int64_t) const {
  if (working == DType::f32 || working == DType::bf16 || working == DType::f16) return {};
  return "kernels_fused_cuda: no layer norm in " + std::string(name_of(working));
}

std::size_t CudaNorm::workspace(std::int64_t, std::int64_t) const { return 0; }

void CudaNorm::forward(const LayerNorm& args, Stream& stream) {
  if (args.src.empty()) return;
  with_element(args.src.dtype, [&](auto element) {
    using T = decltype(element);
    const Forward<T> parameters{args.src.as<T>(),
                                args.weight.as<T>(),
                                args.bias.as<T>(),
                                args.dst.as<T>(),
                                args.mean.as<float>(),
                                args.rstd.as<float>(),
                                args.src.rows,
                                args.src.cols,
                                args.src.row_stride,
                                args.dst.row_stride,
                                args.eps,
                                aligned_rows(args.src, args.weight, args.bias, args.dst)};
    with_team<T>(args.src.cols, [&](auto threads, auto packs) {
      launch("layernorm_forward", layernorm_forward<T, threads(), packs()>, team_grid<threads()>(args.src.rows),
             team_block<threads()>(), 0, handle(stream), parameters);
    });
  });
}

void CudaNorm::backward(const LayerNormGradient&, Stream&) {
  throw DeviceError("kernels_fused_cuda: layer norm's backward is not there");
}

}  // namespace espalier::kernels_fused::cuda
