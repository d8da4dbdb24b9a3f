#include <cstdint>

#include "compat.cuh"
#include "element.cuh"
#include "elementwise.hpp"
#include "espalier/error.hpp"
#include "launch.cuh"
#include "reduce.cuh"
#include "row_tiles.cuh"
#include "scratch.hpp"
#include "stream.hpp"

// The gradient of an embedding adds the rows of tokens with the same id, in ascending order of the tokens, with work in
// proportion to the tokens. The tokens of an id get neighbouring places, are brought into ascending order there, and
// are added to the id's row of the table. Atomics count integers alone: where an id's places lie, and the order in
// which its tokens reach them, may differ from run to run; what they hold once they are ordered does not.
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

/// A token in its place among those of its id.
struct alignas(16) Place {
  std::int32_t entry;   ///< row of the table
  std::int32_t length;  ///< at the first place of an id: how many it has; 0 at the others
  std::int32_t token;
};

/// Scratch of one call. Tables of `rows`: their contents count only for ids that occur.
struct Lists {
  Place* places;            ///< [tokens]
  std::int32_t* arrival;    ///< [tokens] number among the tokens of the id, in no fixed order
  std::int32_t* unordered;  ///< [tokens] tokens by id
  std::int32_t* used;       ///< [1] places
  std::int32_t* length;     ///< [rows] tokens with this id
  std::int32_t* begin;      ///< [rows] first place of this id

  static std::size_t bytes(std::int64_t rows, std::int64_t tokens) {
    return static_cast<std::size_t>(tokens) * (sizeof(Place) + 2 * sizeof(std::int32_t)) +
           static_cast<std::size_t>(1 + 2 * rows) * sizeof(std::int32_t);
  }
  Lists(std::byte* memory, std::int64_t rows, std::int64_t tokens) : places(reinterpret_cast<Place*>(memory)) {
    arrival = reinterpret_cast<std::int32_t*>(places + tokens);
    unordered = arrival + tokens;
    used = unordered + tokens;
    length = used + 1;
    begin = length + rows;
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
  if (token == 0) *lists.used = 0;
  if (entry >= 0) lists.length[entry] = 0;
}

__global__ void __launch_bounds__(kThreads) count_tokens(Ids ids, Lists lists) {
  const std::int64_t token = own_token(), entry = ids.own_entry(token);
  if (entry >= 0) lists.arrival[token] = atomicAdd(lists.length + entry, 1);
}

/// Sum of the values of the threads before this one; `total` gets the whole block's. @param sums  shared, [32].
template <class Shared>
__device__ std::int32_t sum_before(std::int32_t value, Shared sums, std::int32_t& total) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  std::int32_t sum = value;
#pragma unroll
  for (unsigned lanes = 1; lanes < 32; lanes *= 2) {
    const std::int32_t below = __shfl_up_sync(kAllLanes, sum, lanes);
    if (lane >= lanes) sum += below;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  std::int32_t before = sum - value;
  total = 0;
  for (unsigned i = 0; i < kThreads / 32; ++i) {
    const std::int32_t other = sums[i];
    if (i < warp) before += other;
    total += other;
  }
  return before;
}

/// The token that came first to an id, whichever it is, finds places for all of them. One atomic a block.
__global__ void __launch_bounds__(kThreads) find_places(Ids ids, Lists lists) {
  SMEM_ARRAY(std::int32_t, sums, 32);
  SMEM_ARRAY(std::int32_t, base, 1);
  const std::int64_t token = own_token(), entry = ids.own_entry(token);
  const bool first = entry >= 0 && lists.arrival[token] == 0;
  std::int32_t total = 0;
  const std::int32_t before = sum_before(first ? lists.length[entry] : 0, sums, total);
  if (threadIdx.x == 0) base[0] = atomicAdd(lists.used, total);
  __syncthreads();
  if (first) lists.begin[entry] = base[0] + before;
}

__global__ void __launch_bounds__(kThreads) fill_places(Ids ids, Lists lists) {
  const std::int64_t token = own_token(), entry = ids.own_entry(token);
  if (entry >= 0) lists.unordered[lists.begin[entry] + lists.arrival[token]] = static_cast<std::int32_t>(token);
}

/// Each token counts those of its id that come before it.
__global__ void __launch_bounds__(kThreads) order_places(Ids ids, Lists lists) {
  const std::int64_t token = own_token(), entry = ids.own_entry(token);
  if (entry < 0) return;
  const std::int32_t begin = lists.begin[entry], length = lists.length[entry];
  std::int32_t earlier = 0;
  for (std::int32_t i = 0; i < length; ++i) earlier += lists.unordered[begin + i] < token ? 1 : 0;
  lists.places[begin + earlier] = {static_cast<std::int32_t>(entry), earlier == 0 ? length : 0,
                                   static_cast<std::int32_t>(token)};
}

/// Adds the rows of an id's tokens to its row of the table.
template <class T>
struct AddTokens {
  static constexpr int kWidth = 4;
  static constexpr int kAhead = 8;  ///< rows loaded before the first of them is added
  const Place* places;
  const T* grad;
  std::int64_t grad_stride;
  float* table;
  std::int64_t table_stride;

  /// @param first  at the id's first place.
  __device__ void add(const Place* first, const Place& place, std::int64_t c, int n, bool aligned) const {
    float* to = table + place.entry * table_stride + c;
    Pack<float, kWidth> sum = load_pack<float, kWidth>(to, n, aligned);
    add_row(sum, load_pack<T, kWidth>(grad + place.token * grad_stride + c, n, aligned));
    std::int32_t next[kAhead];  // one round ahead of the rows, which lie where it says
    find(first, 1, place.length, next);
    for (std::int32_t begin = 1; begin < place.length; begin += kAhead) {
      Pack<T, kWidth> rows[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        rows[k] = load_pack<T, kWidth>(grad + next[k] * grad_stride + c, n, aligned);
      }
      find(first, begin + kAhead, place.length, next);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (begin + k < place.length) add_row(sum, rows[k]);
      }
    }
    store_pack(to, sum, n, aligned);
  }

  /// Tokens at places begin, begin + 1, …; behind the last one, that one again.
  __device__ static void find(const Place* first, std::int32_t begin, std::int32_t length,
                              std::int32_t (&tokens)[kAhead]) {
    if (begin >= length) return;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) tokens[k] = first[begin + k < length ? begin + k : length - 1].token;
  }
  __device__ static void add_row(Pack<float, kWidth>& sum, const Pack<T, kWidth>& row) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum.set(i, sum[i] + row[i]);
  }
};

/// One row of threads a place: those at the first place of an id add all its tokens.
template <class T>
__global__ void __launch_bounds__(kThreads, 4)
    add_tokens(AddTokens<T> operation, const std::int32_t* used, std::int64_t tokens, std::int64_t cols,
               unsigned across_bits, unsigned column_tiles, bool aligned) {
  constexpr int kWidth = AddTokens<T>::kWidth;
  const unsigned across = 1u << across_bits;
  const std::int64_t at =
      std::int64_t{blockIdx.x / column_tiles} * (kThreads >> across_bits) + (threadIdx.x >> across_bits);
  const std::int64_t c = (std::int64_t{blockIdx.x % column_tiles} * across + (threadIdx.x & (across - 1))) * kWidth;
  if (at >= tokens || c >= cols) return;
  const Place place = operation.places[at];  // loaded before it is known to be one: a wait less
  if (at >= *used || place.length == 0) return;
  operation.add(operation.places + at, place, c, cols - c < kWidth ? static_cast<int>(cols - c) : kWidth, aligned);
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

std::size_t CudaElementwise::embedding_workspace(std::int64_t tokens, std::int64_t table_rows) const {
  return Lists::bytes(table_rows, tokens);
}

void CudaElementwise::embedding_backward(const View& ids, const View& grad_dst, std::int64_t first_id,
                                         const View& grad_table, Stream& stream) {
  ESPALIER_ASSERT(grad_table.dtype == DType::f32 && ids.elements() == grad_dst.rows &&
                  grad_table.cols == grad_dst.cols);
  const std::int64_t tokens = grad_dst.rows, rows = grad_table.rows, cols = grad_dst.cols;
  ESPALIER_ASSERT(tokens < std::int64_t{1} << 31 && rows < std::int64_t{1} << 31);
  if (grad_dst.empty() || grad_table.empty()) return;
  const Ids own{ids.as<const std::int32_t>(), tokens, first_id, rows};
  const Lists lists(scratch_.bytes(embedding_workspace(tokens, rows), stream), rows, tokens);
  const dim3 grid(static_cast<unsigned>((tokens + kThreads - 1) / kThreads)), block(kThreads);
  const Queue queue = handle(stream);
  launch("embedding_backward_clear", clear_lengths, grid, block, 0, queue, own, lists);
  launch("embedding_backward_count", count_tokens, grid, block, 0, queue, own, lists);
  launch("embedding_backward_find", find_places, grid, block, 0, queue, own, lists);
  launch("embedding_backward_fill", fill_places, grid, block, 0, queue, own, lists);
  launch("embedding_backward_order", order_places, grid, block, 0, queue, own, lists);
  with_element(grad_dst.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int kWidth = AddTokens<T>::kWidth;
    const bool aligned = aligned_rows(grad_dst, grad_table);
    const RowTiles tiles(tokens, cols, kWidth, aligned);
    const std::int64_t places_a_block = kThreads >> tiles.across_bits;
    const std::int64_t blocks = (tokens + places_a_block - 1) / places_a_block * tiles.column_tiles;
    ESPALIER_ASSERT(blocks < std::int64_t{1} << 31);
    const AddTokens<T> operation{lists.places, grad_dst.as<const T>(), grad_dst.row_stride, grad_table.as<float>(),
                                 grad_table.row_stride};
    launch("embedding_backward_add", add_tokens<T>, dim3(static_cast<unsigned>(blocks)), block, 0, queue, operation,
           static_cast<const std::int32_t*>(lists.used), tokens, cols, tiles.across_bits, tiles.column_tiles, aligned);
  });
}

}  // namespace espalier::kernels_fused::cuda
