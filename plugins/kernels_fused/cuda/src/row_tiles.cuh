#pragma once

#include <cstdint>

#include "compat.cuh"
#include "element.cuh"
#include "espalier/error.hpp"
#include "launch.cuh"

/// The frame of kernels over the elements of matrices: how threads lie on rows and columns.
namespace espalier::kernels_fused::cuda {

/// Columns of a pack in a kernel that moves these types: 16 bytes of the widest.
template <class... T>
inline constexpr int kPackColumns = ((sizeof(T) == 4) || ...) ? 4 : 8;

inline constexpr int kTileThreads = 256;
inline constexpr int kTileRows = 4;  ///< rows of one thread: their loads are all in flight before the first store

/// A block covers a tile: `across` threads side by side (a power of two), each with a pack of neighbouring columns, and
/// below one another as many as are left, each with kTileRows rows.
struct RowTiles {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t last_cols = 0;  ///< of the last row, which may be shorter
  unsigned across_bits = 0;
  unsigned column_tiles = 1;  ///< side by side; tiles are numbered along the rows
  bool aligned = false;       ///< packs may be moved by accesses of 16 bytes

  /// @param width        columns of a pack.
  /// @param are_aligned  whether every row of every operand starts where packs may be moved by wide accesses.
  RowTiles(std::int64_t row_count, std::int64_t col_count, int width, bool are_aligned)
      : rows(row_count), cols(col_count), last_cols(col_count), aligned(are_aligned) {
    const std::int64_t packs = (cols + width - 1) / width;
    while ((1 << across_bits) < kTileThreads && (std::int64_t{1} << across_bits) < packs) ++across_bits;
    const std::int64_t across = std::int64_t{1} << across_bits;
    column_tiles = static_cast<unsigned>((packs + across - 1) / across);
  }

  /// Rows with all columns.
  __host__ __device__ std::int64_t whole_rows() const { return last_cols == cols ? rows : rows - 1; }
  int rows_a_tile() const { return (kTileThreads >> across_bits) * kTileRows; }
  unsigned tiles() const {
    const std::int64_t count = (rows + rows_a_tile() - 1) / rows_a_tile() * column_tiles;
    ESPALIER_ASSERT(count < std::int64_t{1} << 31);
    return static_cast<unsigned>(count);
  }
};

/// Operation: kWidth; Column column(c, n, aligned) loads what all rows share; Item load(row, c, n, aligned) and
/// store(row, c, n, wide, column, item) handle the n elements of one row from column c on, n <= kWidth. An element of
/// an output may lie on the same element of an input, not on another one.
template <class Operation>
__global__ void __launch_bounds__(kTileThreads) row_tiles_kernel(Operation operation, RowTiles tiles) {
  constexpr int kWidth = Operation::kWidth;
  const unsigned across = 1u << tiles.across_bits;
  const unsigned row_tile = blockIdx.x / tiles.column_tiles;
  const unsigned column_tile = blockIdx.x % tiles.column_tiles;
  const std::int64_t c = (std::int64_t{column_tile} * across + (threadIdx.x & (across - 1))) * kWidth;
  if (c >= tiles.cols) return;
  const int below = kTileThreads >> tiles.across_bits;
  const std::int64_t top = std::int64_t{row_tile} * (below * kTileRows);
  const std::int64_t first = top + (threadIdx.x >> tiles.across_bits);
  if (tiles.aligned && c + kWidth <= tiles.cols && top + below * kTileRows <= tiles.whole_rows()) {
    // Nearly always: without a question about any element.
    const auto column = operation.column(c, kWidth, true);
    decltype(operation.load(first, c, kWidth, true)) items[kTileRows];
#pragma unroll
    for (int k = 0; k < kTileRows; ++k) items[k] = operation.load(first + k * below, c, kWidth, true);
#pragma unroll
    for (int k = 0; k < kTileRows; ++k) operation.store(first + k * below, c, kWidth, true, column, items[k]);
    return;
  }
  const auto left = [c](std::int64_t cols) { return cols - c < kWidth ? static_cast<int>(cols - c) : kWidth; };
  const auto column = operation.column(c, left(tiles.cols), tiles.aligned);
#pragma unroll 1
  for (int k = 0; k < kTileRows; ++k) {
    const std::int64_t row = first + k * below;
    if (row >= tiles.rows) break;
    const int n = left(row + 1 < tiles.rows ? tiles.cols : tiles.last_cols);
    if (n <= 0) break;
    operation.store(row, c, n, tiles.aligned, column, operation.load(row, c, n, tiles.aligned));
  }
}

template <class Operation>
void launch_rows(const char* name, const Operation& operation, const RowTiles& tiles, const Queue& queue) {
  if (tiles.rows == 0 || tiles.cols == 0) return;
  launch(name, row_tiles_kernel<Operation>, dim3(tiles.tiles()), dim3(kTileThreads), 0, queue, operation, tiles);
}

/// The tiles of a matrix whose rows lie behind one another in every operand: cut anew into rows of a block's width, so
/// that neither short rows nor a single long one leave threads idle.
inline RowTiles flat_tiles(std::int64_t elements, int width) {
  const std::int64_t cols = std::int64_t{kTileThreads} * width;
  RowTiles tiles((elements + cols - 1) / cols, cols, width, false);
  if (tiles.rows > 0) tiles.last_cols = elements - (tiles.rows - 1) * cols;
  return tiles;
}

}  // namespace espalier::kernels_fused::cuda
