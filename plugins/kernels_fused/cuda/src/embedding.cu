#include <cstdint>

#include "compat.cuh"
#include "element.cuh"
#include "elementwise.hpp"
#include "espalier/error.hpp"
#include "launch.cuh"
#include "row_tiles.cuh"
#include "scratch.hpp"
#include "stream.hpp"

// The gradient of an embedding adds the rows of tokens with the same id, in ascending order of the tokens, with work in
// proportion to the tokens. Tokens are put into one segment an id, each segment is brought into ascending order, then
// every segment's rows are added to its row of the table. Atomics count integers alone: where a segment lies, and the
// order in which tokens reach it, may differ from run to run; what it holds once it is ordered does not.
namespace espalier::kernels_fused::cuda {
namespace {

constexpr int kThreads = 256;

/// Rows of a table, looked up.
template <class T>
struct Lookup {
  static constexpr int kWidth = kPack<T>;
  using Values = Pack<T, kWidth>;
  const std::int32_t* ids;
  const T* table;
  std::int64_t table_stride, table_rows, first_id;
  T* dst;
  std::int64_t dst_stride;

  struct Nothing {};
  __device__ Nothing column(std::int64_t, int, bool) const { return {}; }
  __device__ Values load(std::int64_t row, std::int64_t c, int n, bool aligned) const {
    const std::int64_t entry = ids[row] - first_id;
    const bool own = entry >= 0 && entry < table_rows;
    return load_pack<T, kWidth>(own ? table + entry * table_stride + c : table, own ? n : 0, aligned);
  }
  __device__ void store(std::int64_t row, std::int64_t c, int n, bool aligned, Nothing, const Values& values) const {
    store_pack(dst + row * dst_stride + c, values, n, aligned);
  }
};

/// Tokens of one id.
struct Segment {
  std::int32_t entry;  ///< row of the table
  std::int32_t begin;  ///< in the lists of tokens
  std::int32_t length;
};

/// Scratch of one call. Tables of `rows`: their contents count only for ids that occur.
struct Lists {
  std::int32_t* length;     ///< [rows] tokens with this id
  std::int32_t* begin;      ///< [rows] of their segment
  std::int32_t* arrival;    ///< [tokens] place inside the segment, in no fixed order
  std::int32_t* unordered;  ///< [tokens] segments
  std::int32_t* ordered;    ///< [tokens] segments, each ascending
  Segment* segments;        ///< [tokens] at most
  std::int32_t* used;       ///< [2]: tokens in segments, segments

  static std::size_t bytes(std::int64_t rows, std::int64_t tokens) {
    return static_cast<std::size_t>(2 * rows + 6 * tokens + 2) * sizeof(std::int32_t);
  }
  Lists(std::byte* memory, std::int64_t rows, std::int64_t tokens) {
    auto* at = reinterpret_cast<std::int32_t*>(memory);
    length = at;
    begin = length + rows;
    arrival = begin + rows;
    unordered = arrival + tokens;
    ordered = unordered + tokens;
    segments = reinterpret_cast<Segment*>(ordered + tokens);
    used = ordered + tokens + 3 * tokens;
  }
};

struct Ids {
  const std::int32_t* data;
  std::int64_t tokens, first_id, rows;

  /// Row of the table of this thread's token, or −1.
  __device__ std::int64_t own_entry(std::int64_t token) const {
    if (token >= tokens) return -1;
    const std::int64_t entry = data[token] - first_id;
    return entry >= 0 && entry < rows ? entry : -1;
  }
};

__device__ inline std::int64_t own_token() { return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; }

__global__ void __launch_bounds__(kThreads) clear_lengths(Ids ids, Lists lists) {
  const std::int64_t token = own_token(), entry = ids.own_entry(token);
  if (token < 2) lists.used[token] = 0;
  if (entry >= 0) lists.length[entry] = 0;
}

__global__ void __launch_bounds__(kThreads) count_tokens(Ids ids, Lists lists) {
  const std::int64_t token = own_token(), entry = ids.own_entry(token);
  if (entry >= 0) lists.arrival[token] = atomicAdd(lists.length + entry, 1);
}

/// The token that came first into a segment, whichever it is, finds a place for it.
__global__ void __launch_bounds__(kThreads) place_segments(Ids ids, Lists lists) {
  const std::int64_t token = own_token(), entry = ids.own_entry(token);
  if (entry < 0 || lists.arrival[token] != 0) return;
  const std::int32_t length = lists.length[entry];
  const std::int32_t begin = atomicAdd(lists.used, length);
  lists.begin[entry] = begin;
  lists.segments[atomicAdd(lists.used + 1, 1)] = {static_cast<std::int32_t>(entry), begin, length};
}

__global__ void __launch_bounds__(kThreads) fill_segments(Ids ids, Lists lists) {
  const std::int64_t token = own_token(), entry = ids.own_entry(token);
  if (entry < 0) return;
  lists.unordered[lists.begin[entry] + lists.arrival[token]] = static_cast<std::int32_t>(token);
}

/// Each token counts those of its segment that come before it.
__global__ void __launch_bounds__(kThreads) order_segments(Ids ids, Lists lists) {
  const std::int64_t token = own_token(), entry = ids.own_entry(token);
  if (entry < 0) return;
  const std::int32_t begin = lists.begin[entry], length = lists.length[entry];
  std::int32_t earlier = 0;
  for (std::int32_t i = 0; i < length; ++i) earlier += lists.unordered[begin + i] < token ? 1 : 0;
  lists.ordered[begin + earlier] = static_cast<std::int32_t>(token);
}

/// Adds a segment's rows to its row of the table.
template <class T>
struct AddSegments {
  static constexpr int kWidth = 4;
  static constexpr int kAhead = 8;  ///< rows loaded before the first of them is added
  const Segment* segments;
  const std::int32_t* tokens;
  const T* grad;
  std::int64_t grad_stride;
  float* table;
  std::int64_t table_stride;

  __device__ void add(const Segment& segment, std::int64_t c, int n, bool aligned) const {
    float* to = table + segment.entry * table_stride + c;
    Pack<float, kWidth> sum = load_pack<float, kWidth>(to, n, aligned);
    const std::int32_t* token = tokens + segment.begin;
    for (std::int32_t first = 0; first < segment.length; first += kAhead) {
      Pack<T, kWidth> rows[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const bool given = first + k < segment.length;
        rows[k] =
            load_pack<T, kWidth>(given ? grad + token[first + k] * grad_stride + c : grad, given ? n : 0, aligned);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (first + k >= segment.length) break;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum.v[i] += rows[k][i];
      }
    }
    store_pack(to, sum, n, aligned);
  }
};

/// One row of threads a segment; the grid is made for the most there can be.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_segments(AddSegments<T> operation, const std::int32_t* count, std::int64_t cols, unsigned across_bits,
                 unsigned column_tiles, bool aligned) {
  constexpr int kWidth = AddSegments<T>::kWidth;
  const unsigned across = 1u << across_bits;
  const std::int64_t segment =
      std::int64_t{blockIdx.x / column_tiles} * (kThreads >> across_bits) + (threadIdx.x >> across_bits);
  const std::int64_t c = (std::int64_t{blockIdx.x % column_tiles} * across + (threadIdx.x & (across - 1))) * kWidth;
  if (segment >= *count || c >= cols) return;
  operation.add(operation.segments[segment], c, cols - c < kWidth ? static_cast<int>(cols - c) : kWidth, aligned);
}

}  // namespace

void CudaElementwise::embedding(const View& ids, const View& table, std::int64_t first_id, const View& dst,
                                Stream& stream) {
  ESPALIER_ASSERT(table.dtype == dst.dtype && ids.elements() == dst.rows && (dst.rows == 0 || table.cols == dst.cols));
  with_element(dst.dtype, [&](auto type) {
    using T = decltype(type);
    using Operation = Lookup<T>;
    const Operation operation{ids.as<const std::int32_t>(),
                              table.as<const T>(),
                              table.row_stride,
                              table.rows,
                              first_id,
                              dst.as<T>(),
                              dst.row_stride};
    const RowTiles tiles(dst.rows, dst.cols, Operation::kWidth, aligned_rows(table, dst));
    launch_rows("embedding", operation, tiles, handle(stream));
  });
}

void CudaElementwise::embedding_backward(const View& ids, const View& grad_dst, std::int64_t first_id,
                                         const View& grad_table, Stream& stream) {
  ESPALIER_ASSERT(grad_table.dtype == DType::f32 && ids.elements() == grad_dst.rows &&
                  grad_table.cols == grad_dst.cols);
  const std::int64_t tokens = grad_dst.rows, rows = grad_table.rows, cols = grad_dst.cols;
  ESPALIER_ASSERT(tokens < std::int64_t{1} << 31 && rows < std::int64_t{1} << 31);
  if (grad_dst.empty() || grad_table.empty()) return;
  const Ids own{ids.as<const std::int32_t>(), tokens, first_id, rows};
  const Lists lists(scratch_.bytes(Lists::bytes(rows, tokens), stream), rows, tokens);
  const dim3 grid(static_cast<unsigned>((tokens + kThreads - 1) / kThreads)), block(kThreads);
  const cudaStream_t queue = handle(stream);
  launch("embedding_backward_clear", clear_lengths, grid, block, 0, queue, own, lists);
  launch("embedding_backward_count", count_tokens, grid, block, 0, queue, own, lists);
  launch("embedding_backward_place", place_segments, grid, block, 0, queue, own, lists);
  launch("embedding_backward_fill", fill_segments, grid, block, 0, queue, own, lists);
  launch("embedding_backward_order", order_segments, grid, block, 0, queue, own, lists);
  with_element(grad_dst.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kWidth = AddSegments<T>::kWidth;
    const bool aligned = aligned_rows(grad_dst, grad_table);
    RowTiles tiles(tokens, cols, kWidth, aligned);
    const std::int64_t segments_a_block = kThreads >> tiles.across_bits;
    const std::int64_t blocks = (tokens + segments_a_block - 1) / segments_a_block * tiles.column_tiles;
    ESPALIER_ASSERT(blocks < std::int64_t{1} << 31);
    const AddSegments<T> operation{lists.segments,      lists.ordered,          grad_dst.as<const T>(),
                                   grad_dst.row_stride, grad_table.as<float>(), grad_table.row_stride};
    launch("embedding_backward_add", add_segments<T>, dim3(static_cast<unsigned>(blocks)), block, 0, queue, operation,
           static_cast<const std::int32_t*>(lists.used + 1), cols, tiles.across_bits, tiles.column_tiles, aligned);
  });
}

}  // namespace espalier::kernels_fused::cuda
