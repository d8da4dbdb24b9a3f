// Layer norm. A row belongs to a team of kThreads threads: a warp for short rows, several of which share a block, else
// a block. A thread holds kPacks packs of 16 bytes of its row in registers, so that the row is read once; rows that are
// too long for that are read again from memory in each pass (kPacks = 0). Which thread has which element, and so the
// order of every sum, follows from the hidden size alone.
//
// Backward reads a row and its gradient once, for the gradient of the row and for those of weight and bias, whose sums
// a thread keeps in registers while its team goes through a part of the rows. Rows beyond 512 packs have no room for
// that: two kernels then read them.
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
  __device__ __forceinline__ Row(const T* data, std::int64_t hidden, bool aligned)
      : data_(data), hidden_(hidden), aligned_(aligned) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) held_[i] = load_pack(data + at(i), hidden - at(i), aligned);
  }

  /// Calls body(pack, first column, columns that exist from there) for each pack with at least one column.
  template <class Body>
  __device__ __forceinline__ void each(Body&& body) const {
    each_of_two(*this, [&](const Pack<T>& pack, const Pack<T>&, std::int64_t column, std::int64_t left) {
      body(pack, column, left);
    });
  }

  /// The same for two rows at once: body(pack, the other's pack, first column, columns that exist from there).
  template <class Body>
  __device__ __forceinline__ void each_of_two(const Row& other, Body&& body) const {
    if constexpr (kPacks > 0) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        if (at(i) < hidden_) body(held_[i], other.held_[i], at(i), hidden_ - at(i));
      }
    } else {
      for (std::int64_t column = at(0); column < hidden_; column += kThreads * kPack<T>) {
        const std::int64_t left = hidden_ - column;
        const Pack<T> mine = load_pack(data_ + column, left, aligned_);
        body(mine, &other == this ? mine : load_pack(other.data_ + column, left, aligned_), column, left);
      }
    }
  }

  /// First column of pack i.
  __device__ static __forceinline__ std::int64_t at(int i) {
    return (static_cast<std::int64_t>(threadIdx.x) + static_cast<std::int64_t>(i) * kThreads) * kPack<T>;
  }
  __device__ __forceinline__ const Pack<T>& held(int i) const { return held_[i]; }

 private:
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
    float y[kPack<T>];
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) y[k] = (x[k] - mean) * rstd * weight[k] + bias[k];
    store_pack(dst + column, Pack<T>::of(y), left, args.aligned);
  });
}

template <class T>
struct Backward {
  const T* grad_dst;
  const T* src;
  const T* weight;
  const float* mean;
  const float* rstd;
  const T* residual;  // null: none
  T* grad_src;        // may be grad_dst or residual: a thread has read an element when it writes it
  std::int64_t rows, hidden, grad_dst_stride, src_stride, residual_stride, grad_src_stride;
  bool aligned;
};

/// Σ g and Σ g x̂ of a row: what the normalisation takes off each element.
struct RowSums {
  float g = 0, gx = 0;

  template <class T>
  __device__ __forceinline__ void add(const Pack<T>& x, const Pack<T>& dy, const Pack<T>& weight, float mean,
                                      float rstd) {
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) {
      const float of_k = dy[k] * weight[k];  // zero beyond the row
      g += of_k;
      gx += of_k * ((x[k] - mean) * rstd);
    }
  }
};

/// Writes the gradient of one pack of a row.
template <class T>
__device__ __forceinline__ void store_gradient(const Backward<T>& args, std::int64_t row, std::int64_t column,
                                               std::int64_t left, const Pack<T>& x, const Pack<T>& dy,
                                               const Pack<T>& weight, const Pack<T>& residual, float mean, float rstd,
                                               const RowSums& means) {
  float dx[kPack<T>];
#pragma unroll
  for (int k = 0; k < kPack<T>; ++k) {
    dx[k] = rstd * (dy[k] * weight[k] - means.g - (x[k] - mean) * rstd * means.gx);
  }
  if (args.residual != nullptr) {
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) dx[k] += residual[k];
  }
  store_pack(args.grad_src + row * args.grad_src_stride + column, Pack<T>::of(dx), left, args.aligned);
}

constexpr int kPassThreads = 128;

/// The sums of all threads of a team. @param slots  shared, 4 a warp of the block; `side` changes from call to call, so
/// that one barrier is enough.
template <int kThreads, class Slots>
__device__ __forceinline__ RowSums team_sums(RowSums sums, Slots slots, int side) {
  sums.g = warp_sum(sums.g);
  sums.gx = warp_sum(sums.gx);
  if constexpr (kThreads > 32) {
    constexpr int kWarps = kThreads / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int first = side * 2 * (kPassThreads / 32) + static_cast<int>(threadIdx.y) * 2 * kWarps;
    if (lane == 0) {
      slots[first + 2 * warp] = sums.g;
      slots[first + 2 * warp + 1] = sums.gx;
    }
    __syncthreads();
    sums.g = warp_sum(lane < kWarps ? static_cast<float>(slots[first + 2 * lane]) : 0.0f);
    sums.gx = warp_sum(lane < kWarps ? static_cast<float>(slots[first + 2 * lane + 1]) : 0.0f);
  }
  return sums;
}

/// Backward of `part_rows` rows a block, and their share of the gradients of weight and bias.
/// @param partial  [parts, 2, hidden]: of the weight, of the bias.
template <class T, int kThreads>
__global__ void __launch_bounds__(kPassThreads, 3)
    layernorm_backward_part(Backward<T> args, std::int64_t part_rows, float* partial) {
  constexpr int kPacks = 4, kTeams = kPassThreads / kThreads, kStride = kThreads + 32 / kPack<T>;
  using TeamRow = Row<T, kThreads, kPacks>;
  SMEM_ARRAY(float, slots, 4 * kPassThreads / 32);
  SMEM_ARRAY(float, sums, kTeams* kPack<T>* kStride);
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const std::int64_t begin = blockIdx.x * part_rows;
  const std::int64_t end = begin + part_rows < args.rows ? begin + part_rows : args.rows;
  const float n = static_cast<float>(args.hidden);
  float own[2][kPacks][kPack<T>] = {};  // of the weight, of the bias
  int side = 0;
  for (std::int64_t first = begin; first < end; first += kTeams, side = 1 - side) {
    const std::int64_t row = first + y;
    const int columns = row < end ? static_cast<int>(args.hidden) : 0;  // a team without a row keeps the others company
    const TeamRow src(args.src + row * args.src_stride, columns, args.aligned);
    const TeamRow grad(args.grad_dst + row * args.grad_dst_stride, columns, args.aligned);
    const TeamRow residual(args.residual + row * args.residual_stride, args.residual != nullptr ? columns : 0,
                           args.aligned);
    const float mean = columns > 0 ? args.mean[row] : 0.0f, rstd = columns > 0 ? args.rstd[row] : 0.0f;
    RowSums means;
    src.each_of_two(grad, [&](const Pack<T>& of_x, const Pack<T>& dy, std::int64_t column, std::int64_t left) {
      means.add(of_x, dy, load_pack(args.weight + column, left, args.aligned), mean, rstd);
    });
    means = team_sums<kThreads>(means, slots, side);
    means.g /= n;
    means.gx /= n;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int column = (x + i * kThreads) * kPack<T>, left = columns - column;
      if (left <= 0) continue;
      const Pack<T>&of_x = src.held(i), &dy = grad.held(i);
#pragma unroll
      for (int k = 0; k < kPack<T>; ++k) {
        own[0][i][k] += dy[k] * ((of_x[k] - mean) * rstd);
        own[1][i][k] += dy[k];
      }
      store_gradient(args, row, column, left, of_x, dy, load_pack(args.weight + column, left, args.aligned),
                     residual.held(i), mean, rstd, means);
    }
  }
  float* const to = partial + static_cast<std::int64_t>(blockIdx.x) * 2 * args.hidden;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      __syncthreads();  // the sums before have been read
#pragma unroll
      for (int k = 0; k < kPack<T>; ++k) sums[(y * kPack<T> + k) * kStride + x] = own[which][i][k];
      __syncthreads();
      for (int at = y * kThreads + x; at < kThreads * kPack<T>; at += kPassThreads) {
        float total = 0;
#pragma unroll
        for (int team = 0; team < kTeams; ++team) {
          total += sums[(team * kPack<T> + at % kPack<T>)*kStride + at / kPack<T>];
        }
        const std::int64_t column = static_cast<std::int64_t>(i) * kThreads * kPack<T> + at;
        if (column < args.hidden) to[which * args.hidden + column] = total;
      }
    }
  }
}

/// Of rows that are too long for layernorm_backward_part. From the last row on: the kernel before has just read it.
template <class T, int kThreads, int kPacks>
__global__ void __launch_bounds__(kThreads) layernorm_backward(Backward<T> args) {
  SMEM_ARRAY(float, slots, 32);
  const std::int64_t row = args.rows - 1 - blockIdx.x;
  const float n = static_cast<float>(args.hidden), mean = args.mean[row], rstd = args.rstd[row];
  const Row<T, kThreads, kPacks> src(args.src + row * args.src_stride, args.hidden, args.aligned);
  const Row<T, kThreads, kPacks> grad(args.grad_dst + row * args.grad_dst_stride, args.hidden, args.aligned);
  RowSums means;
  src.each_of_two(grad, [&](const Pack<T>& x, const Pack<T>& dy, std::int64_t column, std::int64_t left) {
    means.add(x, dy, load_pack(args.weight + column, left, args.aligned), mean, rstd);
  });
  means.g = block_sum<kThreads>(means.g, slots) / n;
  means.gx = block_sum<kThreads>(means.gx, slots) / n;
  src.each_of_two(grad, [&](const Pack<T>& x, const Pack<T>& dy, std::int64_t column, std::int64_t left) {
    const Pack<T> residual = load_pack(args.residual + row * args.residual_stride + column,
                                       args.residual != nullptr ? left : 0, args.aligned);
    store_gradient(args, row, column, left, x, dy, load_pack(args.weight + column, left, args.aligned), residual, mean,
                   rstd, means);
  });
}

// Gradients of weight and bias for rows too long for layernorm_backward_part: first each block sums a part of the rows
// for 32 packs of columns, then the parts are summed, as after layernorm_backward_part.
constexpr int kLanes = 32, kRowLanes = 8, kWeightThreads = kLanes * kRowLanes;  // threads of a block: columns, rows
constexpr int kPartLanes = 32;                                                  // of the second stage

/// How the rows are cut into parts.
struct Parts {
  std::int64_t rows;  ///< of a part
  std::int64_t count;

  /// In one pass three blocks share a multiprocessor, and as many parts as an H100 can have under way at once are the
  /// most: that decides nothing but the speed.
  Parts(std::int64_t all, bool one_pass) : Parts(all, one_pass ? 8 : 32, one_pass ? 384 : 256) {}

 private:
  Parts(std::int64_t all, std::int64_t least_rows, std::int64_t most_parts)
      : rows(std::max(least_rows, (all + most_parts - 1) / most_parts)), count((all + rows - 1) / rows) {}
};

constexpr std::int64_t kPacksOfOnePass = 512;

/// @param partial  [parts, 2, hidden]: of the weight, of the bias.
template <class T>
__global__ void __launch_bounds__(kWeightThreads)
    layernorm_weight_parts(Backward<T> args, std::int64_t part_rows, float* partial) {
  SMEM_ARRAY(float, sums, kPack<T>* kRowLanes* kLanes);
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kLanes + x) * kPack<T>,
                     left = args.hidden - column;
  const std::int64_t part = blockIdx.y, begin = part * part_rows;
  const std::int64_t end = begin + part_rows < args.rows ? begin + part_rows : args.rows;
  float sum[2][kPack<T>] = {};
  if (left > 0) {
#pragma unroll 2
    for (std::int64_t row = begin + y; row < end; row += kRowLanes) {
      const Pack<T> dy = load_pack(args.grad_dst + row * args.grad_dst_stride + column, left, args.aligned);
      const Pack<T> src = load_pack(args.src + row * args.src_stride + column, left, args.aligned);
      const float mean = args.mean[row], rstd = args.rstd[row];
#pragma unroll
      for (int k = 0; k < kPack<T>; ++k) {
        sum[0][k] += dy[k] * ((src[k] - mean) * rstd);
        sum[1][k] += dy[k];
      }
    }
  }
#pragma unroll
  for (int which = 0; which < 2; ++which) {
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) sums[(k * kRowLanes + y) * kLanes + x] = sum[which][k];
    __syncthreads();
    for (int k = y; k < kPack<T>; k += kRowLanes) {
      float total = 0;
      for (int lane = 0; lane < kRowLanes; ++lane) total += sums[(k * kRowLanes + lane) * kLanes + x];
      if (k < left) partial[(part * 2 + which) * args.hidden + column + k] = total;
    }
    __syncthreads();  // before the sums are written again
  }
}

/// blockIdx.y 0: the weight's gradient, 1: the bias's.
__global__ void __launch_bounds__(kLanes* kPartLanes)
    layernorm_weight_sum(const float* partial, std::int64_t parts, std::int64_t hidden, bool accumulate,
                         float* grad_weight, float* grad_bias) {
  SMEM_ARRAY(float, sums, kPartLanes* kLanes);
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kLanes + x;
  float sum = 0;
  if (column < hidden) {
#pragma unroll 8
    for (std::int64_t part = y; part < parts; part += kPartLanes)
      sum += partial[(part * 2 + blockIdx.y) * hidden + column];
  }
  sums[y * kLanes + x] = sum;
  __syncthreads();
  if (y > 0 || column >= hidden) return;
  float total = 0;
#pragma unroll
  for (int lane = 0; lane < kPartLanes; ++lane) total += sums[lane * kLanes + x];
  float* const to = (blockIdx.y == 0 ? grad_weight : grad_bias) + column;
  *to = accumulate ? *to + total : total;
}

constexpr std::int64_t packs_of(std::int64_t hidden, int pack) { return (hidden + pack - 1) / pack; }

/// Calls body(threads of a team, packs a thread holds) with the constants for the hidden size: four packs or more are
/// under way in a thread, where there are as many.
template <class T, class Body>
void with_team(std::int64_t hidden, Body&& body) {
  const std::int64_t packs = packs_of(hidden, kPack<T>);
  if (packs <= 128) return body(Constant<32>{}, Constant<4>{});
  if (packs <= 256) return body(Constant<32>{}, Constant<8>{});
  if (packs <= 512) return body(Constant<128>{}, Constant<4>{});
  if (packs <= 1024) return body(Constant<256>{}, Constant<4>{});
  if (packs <= 2048) return body(Constant<512>{}, Constant<4>{});
  return body(Constant<512>{}, Constant<0>{});
}

/// Calls body(threads of a team) with the constant for a row of layernorm_backward_part.
template <class T, class Body>
void with_pass(std::int64_t hidden, Body&& body) {
  const std::int64_t packs = packs_of(hidden, kPack<T>);
  if (packs <= 128) return body(Constant<32>{});
  if (packs <= 256) return body(Constant<64>{});
  return body(Constant<128>{});
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

std::size_t CudaNorm::workspace(std::int64_t tokens, std::int64_t hidden) const {
  std::int64_t parts = Parts(tokens, false).count;
  if (packs_of(hidden, 8) <= kPacksOfOnePass) parts = std::max(parts, Parts(tokens, true).count);
  return static_cast<std::size_t>(parts * 2 * hidden) * sizeof(float);
}

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

void CudaNorm::backward(const LayerNormGradient& args, Stream& stream) {
  const std::int64_t rows = args.src.rows, hidden = args.src.cols;
  if (hidden == 0) return;
  auto* const partial = reinterpret_cast<float*>(scratch_.bytes(workspace(rows, hidden)));
  std::int64_t count = 0;
  with_element(args.src.dtype, [&](auto element) {
    using T = decltype(element);
    const Backward<T> parameters{args.grad_dst.as<T>(),
                                 args.src.as<T>(),
                                 args.weight.as<T>(),
                                 args.mean.as<float>(),
                                 args.rstd.as<float>(),
                                 args.residual.as<T>(),
                                 args.grad_src.as<T>(),
                                 rows,
                                 hidden,
                                 args.grad_dst.row_stride,
                                 args.src.row_stride,
                                 args.residual.row_stride,
                                 args.grad_src.row_stride,
                                 aligned_rows(args.grad_dst, args.src, args.weight, args.residual, args.grad_src)};
    if (rows == 0) return;
    const bool one_pass = packs_of(hidden, kPack<T>) <= kPacksOfOnePass;
    const Parts parts(rows, one_pass);
    count = parts.count;
    if (one_pass) {
      with_pass<T>(hidden, [&](auto threads) {
        launch("layernorm_backward_part", layernorm_backward_part<T, threads()>,
               dim3(static_cast<unsigned>(parts.count)), dim3(threads(), kPassThreads / threads()), 0, handle(stream),
               parameters, parts.rows, partial);
      });
      return;
    }
    // First, since grad_src may lie on grad_dst.
    const std::int64_t columns = kLanes * kPack<T>;
    launch("layernorm_weight_parts", layernorm_weight_parts<T>,
           dim3(static_cast<unsigned>((hidden + columns - 1) / columns), static_cast<unsigned>(parts.count)),
           dim3(kLanes, kRowLanes), 0, handle(stream), parameters, parts.rows, partial);
    const auto kernel =
        packs_of(hidden, kPack<T>) <= 2048 ? layernorm_backward<T, 512, 4> : layernorm_backward<T, 512, 0>;
    launch("layernorm_backward", kernel, dim3(static_cast<unsigned>(rows)), dim3(512), 0, handle(stream), parameters);
  });
  // Without rows the sums are zeros.
  launch("layernorm_weight_sum", layernorm_weight_sum, dim3(static_cast<unsigned>((hidden + kLanes - 1) / kLanes), 2),
         dim3(kLanes, kPartLanes), 0, handle(stream), partial, count, hidden, args.accumulate,
         args.grad_weight.as<float>(), args.grad_bias.as<float>());
}

}  // namespace espalier::kernels_fused::cuda
