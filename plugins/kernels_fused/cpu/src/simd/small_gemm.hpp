#pragma once

#include "simd/vector.hpp"

/// FP32 products of matrices that lie in the cache, for attention. Sums run over k in ascending order.
namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {

#if defined(__AVX512F__)
constexpr int kTileRows = 8;  // with two registers of columns: 16 sums, enough to hide the latency of the FMA
#else
constexpr int kTileRows = 4;  // 8 sums, 2 columns and a broadcast in 16 registers
#endif
constexpr int kTileColumns = 2 * kWidth;

/// The left operand: element (row, k) at data[row · row_stride + k · k_stride].
struct Left {
  const float* data;
  int64_t row_stride, k_stride;

  Left at(int64_t row, int64_t k) const { return {data + row * row_stride + k * k_stride, row_stride, k_stride}; }
};

template <int kColumns>
[[gnu::always_inline]] inline void multiply_tile_of(int64_t k, Left a, const float* b, int64_t b_stride, float* dst,
                                                    int64_t dst_stride, bool accumulate) {
  F sum[kTileRows][kColumns];
  for (int r = 0; r < kTileRows; ++r) {
    for (int c = 0; c < kColumns; ++c) sum[r][c] = accumulate ? load(dst + r * dst_stride + c * kWidth) : zero();
  }
  const float* left = a.data;
  for (int64_t i = 0; i < k; ++i) {
    F column[kColumns];
    for (int c = 0; c < kColumns; ++c) column[c] = load(b + c * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const F row = broadcast(left[r * a.row_stride]);
      for (int c = 0; c < kColumns; ++c) sum[r][c] = fma(row, column[c], sum[r][c]);
    }
    left += a.k_stride;
    b += b_stride;
  }
  for (int r = 0; r < kTileRows; ++r) {
    for (int c = 0; c < kColumns; ++c) store(dst + r * dst_stride + c * kWidth, sum[r][c]);
  }
}

/// dst [kTileRows, n] (+)= a [kTileRows, k] · b [k, n], n a multiple of kWidth.
inline void multiply_rows(int64_t n, int64_t k, Left a, const float* b, int64_t b_stride, float* dst,
                          int64_t dst_stride, bool accumulate) {
  int64_t c = 0;
  for (; c + kTileColumns <= n; c += kTileColumns)
    multiply_tile_of<2>(k, a, b + c, b_stride, dst + c, dst_stride, accumulate);
  if (c < n) multiply_tile_of<1>(k, a, b + c, b_stride, dst + c, dst_stride, accumulate);
}

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
