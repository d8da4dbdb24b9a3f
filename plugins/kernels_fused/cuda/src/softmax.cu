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

/// One row of one matrix, as its threads see it. Positions have 32 bits: 64 of them are slow to convert and to divide.
struct Row {
  std::int64_t batch, head;
  int position;             ///< of the query
  int allowed;              ///< leading keys it may see
  std::int64_t start;       ///< of the row in the matrices
  std::int64_t statistics;  ///< index of the row's entry
  float slope;

  __device__ float biased(float score, int key, float scale) const {
    return score * scale + slope * static_cast<float>(key - position);
  }
};

__device__ inline Row row_at(const Rows& rows, std::int64_t index) {
  const auto of_block = static_cast<std::uint32_t>(rows.block.rows), heads = static_cast<std::uint32_t>(rows.heads);
  const std::uint32_t in_block = static_cast<std::uint32_t>(index) / of_block;
  const std::uint32_t item = static_cast<std::uint32_t>(rows.block.first_item) + in_block;
  const std::int64_t query = rows.block.first_row + (static_cast<std::uint32_t>(index) - in_block * of_block);
  Row row;
  row.batch = item / heads;
  row.head = item % heads;
  row.position = static_cast<int>(rows.first_query + query);
  row.allowed = static_cast<int>(rows.block.keys);
  if (row.position + 1 < row.allowed) row.allowed = row.position + 1;
  if (rows.key_lengths != nullptr && rows.key_lengths[row.batch] < row.allowed) {
    row.allowed = rows.key_lengths[row.batch];
  }
  row.start = index * rows.block.row_stride;
  row.statistics = static_cast<std::int64_t>(item) * rows.queries + query;
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

/// Thread t of a row takes keys 4t … 4t + 3 of every 4 · kWidth: calls use(key, load(key)) for its groups below `end`
/// in ascending order, with kAhead of them loaded before the first is used. Returns its first key behind.
template <int kWidth, int kAhead, class Load, class Use>
__device__ inline int for_groups(int end, const Load& load, const Use& use) {
  constexpr int kStep = 4 * kWidth;
  int j = static_cast<int>(threadIdx.x % kWidth) * 4;
  for (; j + (kAhead - 1) * kStep < end; j += kAhead * kStep) {
    decltype(load(j)) items[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) items[k] = load(j + k * kStep);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) use(j + k * kStep, items[k]);
  }
#pragma unroll 1
  for (; j < end; j += kStep) use(j, load(j));
  return j;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads<kWidth>) softmax_forward_kernel(Rows rows, const float* scores, T* out) {
  SMEM_ARRAY(float, shared, kWarp);
  const std::int64_t index = row_index<kWidth>();
  if (index >= rows.block.items * rows.block.rows) return;
  const Row row = row_at(rows, index);
  const float* const from = scores + row.start;
  T* const to = out + row.start;
  const auto load = [from](int j) { return load_group<4>(from + j); };
  float largest = -INFINITY;
  for_groups<kWidth, 4>(row.allowed, load, [&](int j, const Scores& group) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (j + k < row.allowed) largest = fmaxf(largest, row.biased(group.value[k], j + k, rows.scale));
    }
  });
  largest = row_max<kWidth>(largest, shared);
  float total = 0.0f;
  for_groups<kWidth, 4>(row.allowed, load, [&](int j, const Scores& group) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (j + k < row.allowed) total += expf(row.biased(group.value[k], j + k, rows.scale) - largest);
    }
  });
  total = row_sum<kWidth>(total, shared);
  const float inverse = 1.0f / total;
  int j = for_groups<kWidth, 2>(row.allowed, load, [&](int key, const Scores& group) {
    Group<T, 4> probabilities;
    const Scores kept = masks(rows.dropout, row, key);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float weight = expf(row.biased(group.value[k], key + k, rows.scale) - largest) * inverse * kept.value[k];
      probabilities.value[k] = from_float<T>(key + k < row.allowed ? weight : 0.0f);
    }
    store_group(to + key, probabilities);
  });
  for (; j < rows.block.keys; j += 4 * kWidth) store_group(to + j, zeros<T>());
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
  struct Both {
    Scores group, products;
  };
  const auto load = [&](int j) {
    return Both{load_group<4>(scores + row.start + j), load_group<4>(grad_probabilities + row.start + j)};
  };
  const float largest = rows.statistics[row.statistics].largest;
  const float inverse = 1.0f / rows.statistics[row.statistics].total;
  float mean = 0.0f;  // Σ p · dp: what the normalisation takes off each element
  for_groups<kWidth, 2>(row.allowed, load, [&](int j, const Both& both) {
    const Scores kept = masks(rows.dropout, row, j);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (j + k >= row.allowed) continue;
      const float p = expf(row.biased(both.group.value[k], j + k, rows.scale) - largest) * inverse;
      mean += p * (both.products.value[k] * kept.value[k]);
    }
  });
  mean = row_sum<kWidth>(mean, shared);
  int j = for_groups<kWidth, 2>(row.allowed, load, [&](int key, const Both& both) {
    Group<T, 4> weights, slopes;
    const Scores kept = masks(rows.dropout, row, key);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const bool allowed = key + k < row.allowed;
      const float p = expf(row.biased(both.group.value[k], key + k, rows.scale) - largest) * inverse;
      const float slope = p * (both.products.value[k] * kept.value[k] - mean) * rows.scale;
      weights.value[k] = from_float<T>(allowed ? p * kept.value[k] : 0.0f);
      slopes.value[k] = from_float<T>(allowed ? slope : 0.0f);
    }
    store_group(probabilities + row.start + key, weights);
    store_group(grad_scores + row.start + key, slopes);
  });
  for (; j < rows.block.keys; j += 4 * kWidth) {
    store_group(probabilities + row.start + j, zeros<T>());
    store_group(grad_scores + row.start + j, zeros<T>());
  }
}

/// Where store_key_gradient writes.
struct KeyGradient {
  std::int64_t batch_stride, position_stride, head_stride;
  std::uint32_t first_item, heads;
  std::uint32_t filled;  ///< positions that have a gradient
};

/// One thread takes four neighbouring channels. A block is of one item, `blocks` of them one item's.
/// @param groups  of four channels: in a row, in an item.
template <class T, bool kWide>
__global__ void __launch_bounds__(kFlatThreads)
    store_key_gradient_kernel(const float* from, T* to, KeyGradient shape, std::uint32_t head_dim, std::uint32_t in_row,
                              std::uint32_t in_item, std::uint32_t blocks) {
  const std::uint32_t item = blockIdx.x / blocks;
  const std::uint32_t group = blockIdx.x % blocks * kFlatThreads + threadIdx.x;
  if (group >= in_item) return;
  const std::uint32_t position = group / in_row, channel = group % in_row * 4;
  const std::uint32_t at = shape.first_item + item;
  const std::uint32_t rows = in_item / in_row;
  const float* const source = from + (std::int64_t{item} * rows + position) * head_dim + channel;
  T* const target = to + at / shape.heads * shape.batch_stride + position * shape.position_stride +
                    at % shape.heads * shape.head_stride + channel;
  const bool filled = position < shape.filled;
  if constexpr (kWide) {
    Group<float, 4> values{};
    if (filled) values = load_group<4>(source);
    Group<T, 4> rounded;
#pragma unroll
    for (int k = 0; k < 4; ++k) rounded.value[k] = from_float<T>(values.value[k]);
    store_group(target, rounded);
  } else {
    const std::uint32_t left = head_dim - channel;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) {
      if (k < left) target[k] = from_float<T>(filled ? source[k] : 0.0f);
    }
  }
}

dim3 grid_for(const ScoreBlock& block, bool warps) {
  const std::int64_t rows = block.items * block.rows;
  constexpr std::int64_t kMost = std::int64_t{1} << 31;  // what positions and rows are counted in
  ESPALIER_ASSERT(rows < kMost && block.first_item + block.items < kMost && block.keys + 4096 < kMost);
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
  if (items * shape.keys * shape.head_dim == 0) return;
  const std::int64_t in_row = (shape.head_dim + 3) / 4, in_item = shape.keys * in_row;
  const std::int64_t blocks = (in_item + kFlatThreads - 1) / kFlatThreads;
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  ESPALIER_ASSERT(in_item + kFlatThreads < kMost && items * blocks < kMost && first_item + items < kMost);
  const dim3 grid(static_cast<unsigned>(items * blocks));
  const KeyGradient places{to.batch_stride,
                           to.position_stride,
                           to.head_stride,
                           static_cast<std::uint32_t>(first_item),
                           static_cast<std::uint32_t>(shape.heads),
                           static_cast<std::uint32_t>(filled)};
  with_element(shape.dtype, [&](auto type) {
    using T = decltype(type);
    auto* const data = static_cast<T*>(to.data);
    const bool all_wide = shape.head_dim % 4 == 0 && to.batch_stride % 4 == 0 && to.position_stride % 4 == 0 &&
                          to.head_stride % 4 == 0 && wide(data) && wide(from);
    const auto kernel = all_wide ? store_key_gradient_kernel<T, true> : store_key_gradient_kernel<T, false>;
    launch("store_key_gradient", kernel, grid, dim3(kFlatThreads), 0, handle(stream), from, data, places,
           shape.head_dim, in_row, in_item, blocks);
  });
}

}  // namespace espalier::kernels_fused::cuda
