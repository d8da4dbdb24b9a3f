#include "softmax.hpp"

#include <cmath>

#include "compat.cuh"
#include "element.cuh"
#include "flat.cuh"
#include "launch.cuh"
#include "reduce.cuh"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarpRows = 4;      ///< rows of a block of warps
constexpr int kBlockWidth = 256;  ///< threads of a row that has a block of its own
constexpr std::int64_t kWarpKeys = 4096;

using Scores = Group<float, 4>;

/// What the kernels need of the shape.
struct Rows {
  ScoreBlock block;
  std::int64_t heads, queries, first_query, keys;
  float scale;
  const float* slopes;
  const std::int32_t* key_lengths;
  RowStatistics* statistics;
  Dropout dropout;
};

Rows rows_of(const Attention& shape, const ScoreBlock& block) {
  auto* statistics = shape.saved.empty() ? nullptr : shape.saved.as<RowStatistics>();
  return {block,       shape.heads,  shape.queries,     shape.first_query, shape.keys,
          shape.scale, shape.slopes, shape.key_lengths, statistics,        shape.dropout};
}

/// One row of one matrix, as its threads see it.
struct Row {
  std::int64_t batch, head;
  std::int64_t position;    ///< of the query
  std::int64_t allowed;     ///< leading keys it may see
  std::int64_t start;       ///< of the row in the matrices
  std::int64_t statistics;  ///< index of the row's entry
  float slope;

  __device__ float biased(float score, std::int64_t key, float scale) const {
    return score * scale + slope * static_cast<float>(key - position);
  }
};

__device__ inline Row row_at(const Rows& rows, std::int64_t index) {
  const std::int64_t item = rows.block.first_item + index / rows.block.rows;
  const std::int64_t query = rows.block.first_row + index % rows.block.rows;
  Row row;
  row.batch = item / rows.heads;
  row.head = item % rows.heads;
  row.position = rows.first_query + query;
  row.allowed = rows.block.keys;
  if (row.position + 1 < row.allowed) row.allowed = row.position + 1;
  if (rows.key_lengths != nullptr && rows.key_lengths[row.batch] < row.allowed) {
    row.allowed = rows.key_lengths[row.batch];
  }
  row.start = index * rows.block.row_stride;
  row.statistics = item * rows.queries + query;
  row.slope = rows.slopes != nullptr ? rows.slopes[row.head] : 0.0f;
  return row;
}

/// What dropout makes of four neighbouring probabilities: 0, or its scale.
__device__ inline Scores masks(const Dropout& dropout, const Row& row, std::int64_t key) {
  Scores kept{{1.0f, 1.0f, 1.0f, 1.0f}};
  if (!dropout.active()) return kept;
  const PhiloxCounter words = dropout.attention_block(row.batch, row.head, row.position, key);
#pragma unroll
  for (int k = 0; k < 4; ++k) kept.value[k] = words[k] >= dropout.threshold() ? dropout.scale() : 0.0f;
  return kept;
}

template <class T>
__device__ inline Group<T, 4> zeros() {
  const T zero = from_float<T>(0.0f);
  return {{zero, zero, zero, zero}};
}

/// The threads of a row: kWidth of them, a warp or a block.
template <int kWidth>
__device__ inline std::int64_t row_index() {
  if constexpr (kWidth == kWarp) {
    return static_cast<std::int64_t>(blockIdx.x) * kWarpRows + threadIdx.x / kWarp;
  } else {
    return static_cast<std::int64_t>(blockIdx.x);
  }
}

template <int kWidth, class Shared>
__device__ inline float row_sum(float value, Shared shared) {
  if constexpr (kWidth == kWarp) {
    return warp_sum(value);
  } else {
    return block_sum<kWidth>(value, shared);
  }
}

template <int kWidth, class Shared>
__device__ inline float row_max(float value, Shared shared) {
  if constexpr (kWidth == kWarp) {
    return warp_max(value);
  } else {
    return block_max<kWidth>(value, shared);
  }
}

template <int kWidth>
constexpr int kThreads = kWidth == kWarp ? kWarp* kWarpRows : kWidth;

/// Thread t of a row takes keys 4t … 4t + 3 of every 4 · kWidth.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads<kWidth>) softmax_forward_kernel(Rows rows, const float* scores, T* out) {
  SMEM_ARRAY(float, shared, kWarp);
  const std::int64_t index = row_index<kWidth>();
  if (index >= rows.block.items * rows.block.rows) return;
  const Row row = row_at(rows, index);
  const std::int64_t first = threadIdx.x % kWidth * 4;
  float largest = -INFINITY;
  for (std::int64_t j = first; j < row.allowed; j += 4 * kWidth) {
    const Scores group = load_group<4>(scores + row.start + j);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (j + k < row.allowed) largest = fmaxf(largest, row.biased(group.value[k], j + k, rows.scale));
    }
  }
  largest = row_max<kWidth>(largest, shared);
  float total = 0.0f;
  for (std::int64_t j = first; j < row.allowed; j += 4 * kWidth) {
    const Scores group = load_group<4>(scores + row.start + j);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (j + k < row.allowed) total += expf(row.biased(group.value[k], j + k, rows.scale) - largest);
    }
  }
  total = row_sum<kWidth>(total, shared);
  const float inverse = 1.0f / total;
  std::int64_t j = first;
  for (; j < row.allowed; j += 4 * kWidth) {
    Group<T, 4> probabilities;
    const Scores kept = masks(rows.dropout, row, j);
    const Scores group = load_group<4>(scores + row.start + j);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float weight = expf(row.biased(group.value[k], j + k, rows.scale) - largest) * inverse * kept.value[k];
      probabilities.value[k] = from_float<T>(j + k < row.allowed ? weight : 0.0f);
    }
    store_group(out + row.start + j, probabilities);
  }
  for (; j < rows.block.keys; j += 4 * kWidth) store_group(out + row.start + j, zeros<T>());
  if (threadIdx.x % kWidth == 0 && rows.statistics != nullptr) rows.statistics[row.statistics] = {largest, total};
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads<kWidth>)
    softmax_backward_kernel(Rows rows, const float* scores, const float* grad_probabilities, T* probabilities,
                            T* grad_scores) {
  SMEM_ARRAY(float, shared, kWarp);
  const std::int64_t index = row_index<kWidth>();
  if (index >= rows.block.items * rows.block.rows) return;
  const Row row = row_at(rows, index);
  const std::int64_t first = threadIdx.x % kWidth * 4;
  const float largest = rows.statistics[row.statistics].largest;
  const float inverse = 1.0f / rows.statistics[row.statistics].total;
  float mean = 0.0f;  // Σ p · dp: what the normalisation takes off each element
  for (std::int64_t j = first; j < row.allowed; j += 4 * kWidth) {
    const Scores kept = masks(rows.dropout, row, j);
    const Scores group = load_group<4>(scores + row.start + j);
    const Scores products = load_group<4>(grad_probabilities + row.start + j);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (j + k >= row.allowed) continue;
      const float p = expf(row.biased(group.value[k], j + k, rows.scale) - largest) * inverse;
      mean += p * (products.value[k] * kept.value[k]);
    }
  }
  mean = row_sum<kWidth>(mean, shared);
  std::int64_t j = first;
  for (; j < row.allowed; j += 4 * kWidth) {
    Group<T, 4> weights, slopes;
    const Scores kept = masks(rows.dropout, row, j);
    const Scores group = load_group<4>(scores + row.start + j);
    const Scores products = load_group<4>(grad_probabilities + row.start + j);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const bool allowed = j + k < row.allowed;
      const float p = expf(row.biased(group.value[k], j + k, rows.scale) - largest) * inverse;
      const float slope = p * (products.value[k] * kept.value[k] - mean) * rows.scale;
      weights.value[k] = from_float<T>(allowed ? p * kept.value[k] : 0.0f);
      slopes.value[k] = from_float<T>(allowed ? slope : 0.0f);
    }
    store_group(probabilities + row.start + j, weights);
    store_group(grad_scores + row.start + j, slopes);
  }
  for (; j < rows.block.keys; j += 4 * kWidth) {
    store_group(probabilities + row.start + j, zeros<T>());
    store_group(grad_scores + row.start + j, zeros<T>());
  }
}

template <class T>
__global__ void __launch_bounds__(kFlatThreads)
    store_key_gradient_kernel(const float* from, T* to, std::int64_t first_item, std::int64_t items, std::int64_t heads,
                              std::int64_t keys, std::int64_t head_dim, std::int64_t filled, std::int64_t batch_stride,
                              std::int64_t position_stride, std::int64_t head_stride) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x;
  if (i >= items * keys * head_dim) return;
  const std::int64_t channel = i % head_dim;
  const std::int64_t position = i / head_dim % keys;
  const std::int64_t item = first_item + i / head_dim / keys;
  to[item / heads * batch_stride + position * position_stride + item % heads * head_stride + channel] =
      from_float<T>(position < filled ? from[i] : 0.0f);
}

dim3 grid_for(const ScoreBlock& block, bool warps) {
  const std::int64_t rows = block.items * block.rows;
  return dim3(static_cast<unsigned>(warps ? (rows + kWarpRows - 1) / kWarpRows : rows));
}

}  // namespace

void softmax_forward(const Attention& shape, const ScoreBlock& block, const float* scores, void* probabilities,
                     Stream& stream) {
  const bool warps = block.keys <= kWarpKeys;
  with_element(shape.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel = warps ? softmax_forward_kernel<T, kWarp> : softmax_forward_kernel<T, kBlockWidth>;
    const dim3 threads(warps ? kThreads<kWarp> : kThreads<kBlockWidth>);
    launch("softmax_forward", kernel, grid_for(block, warps), threads, 0, handle(stream), rows_of(shape, block), scores,
           static_cast<T*>(probabilities));
  });
}

void softmax_backward(const Attention& shape, const ScoreBlock& block, const float* scores,
                      const float* grad_probabilities, void* probabilities, void* grad_scores, Stream& stream) {
  const bool warps = block.keys <= kWarpKeys;
  with_element(shape.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel = warps ? softmax_backward_kernel<T, kWarp> : softmax_backward_kernel<T, kBlockWidth>;
    const dim3 threads(warps ? kThreads<kWarp> : kThreads<kBlockWidth>);
    launch("softmax_backward", kernel, grid_for(block, warps), threads, 0, handle(stream), rows_of(shape, block),
           scores, grad_probabilities, static_cast<T*>(probabilities), static_cast<T*>(grad_scores));
  });
}

void store_key_gradient(const Attention& shape, std::int64_t first_item, std::int64_t items, std::int64_t filled,
                        const float* from, const AttentionOperand& to, Stream& stream) {
  const std::int64_t n = items * shape.keys * shape.head_dim;
  if (n == 0) return;
  const dim3 grid(static_cast<unsigned>((n + kFlatThreads - 1) / kFlatThreads));
  with_element(shape.dtype, [&](auto type) {
    using T = decltype(type);
    launch("store_key_gradient", store_key_gradient_kernel<T>, grid, dim3(kFlatThreads), 0, handle(stream), from,
           static_cast<T*>(to.data), first_item, items, shape.heads, shape.keys, shape.head_dim, filled,
           to.batch_stride, to.position_stride, to.head_stride);
  });
}

}  // namespace espalier::kernels_fused::cuda
