#include "reference/product.hpp"

#include "reference/common.hpp"

namespace espalier::reference {
namespace {

constexpr std::int64_t kTileRows = 32;
constexpr std::int64_t kTileCols = 64;
constexpr std::int64_t kTileDepth = 128;

/// tile[r · ld + c] = op(view)[row + r, column + c], widened.
void load_tile(const View& view, bool transpose, std::int64_t row, std::int64_t rows, std::int64_t column,
               std::int64_t cols, float* tile, std::int64_t ld) {
  if (!transpose) {
    for (std::int64_t r = 0; r < rows; ++r) widen(view, row + r, column, cols, tile + r * ld);
    return;
  }
  float line[kTileDepth];
  for (std::int64_t c = 0; c < cols; ++c) {
    widen(view, column + c, row, rows, line);
    for (std::int64_t r = 0; r < rows; ++r) tile[r * ld + c] = line[r];
  }
}

}  // namespace

void multiply(ThreadPool& pool, const Product& product, StoreSums store) {
  const std::int64_t m = product.rows();
  const std::int64_t n = product.cols();
  const std::int64_t depth = product.depth();
  ESPALIER_ASSERT(depth == (product.transpose_b ? product.b.cols : product.b.rows));
  const std::int64_t column_tiles = blocks(n, kTileCols);
  if (m == 0 || n == 0) return;

  pool.run(blocks(m, kTileRows) * column_tiles, [&](std::int64_t item) {
    const std::int64_t row = item / column_tiles * kTileRows;
    const std::int64_t column = item % column_tiles * kTileCols;
    const std::int64_t rows = std::min(kTileRows, m - row);
    const std::int64_t cols = std::min(kTileCols, n - column);
    float sums[kTileRows][kTileCols] = {};
    float a[kTileRows][kTileDepth];
    float b[kTileDepth][kTileCols];
    for (std::int64_t first = 0; first < depth; first += kTileDepth) {
      const std::int64_t steps = std::min(kTileDepth, depth - first);
      load_tile(product.a, product.transpose_a, row, rows, first, steps, a[0], kTileDepth);
      load_tile(product.b, product.transpose_b, first, steps, column, cols, b[0], kTileCols);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t k = 0; k < steps; ++k) {
          const float factor = a[i][k];
          for (std::int64_t j = 0; j < cols; ++j) sums[i][j] += factor * b[k][j];
        }
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) store(row + i, column, cols, sums[i]);
  });
}

}  // namespace espalier::reference
