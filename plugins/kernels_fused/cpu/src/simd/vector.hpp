#pragma once

// One register of floats, at the level this file is compiled for. Everything lives in the level's namespace: the
// sources of simd/ are compiled once a level, and a function that two levels shared by name would be linked from
// either. For the same reason no inline function of another header may be called where the compiler could leave it out
// of line (tests/unit/kernels_fused checks the symbols).
#include <immintrin.h>

#include <cstdint>

#include "espalier/dtype.hpp"

#if defined(__AVX512F__)
#define ESPALIER_SIMD_LEVEL avx512
#else
#define ESPALIER_SIMD_LEVEL avx2
#endif

namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {

using std::int64_t;

#if defined(__AVX512F__)

using F = __m512;
using I = __m512i;
using Mask = __mmask16;
constexpr int kWidth = 16;

inline F zero() { return _mm512_setzero_ps(); }
inline F broadcast(float x) { return _mm512_set1_ps(x); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
/// c − a·b.
inline F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
/// The second operand where either is NaN.
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
inline F sqrt(F x) { return _mm512_sqrt_ps(x); }
inline F round_to_integer(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/// x · 2^n for integer n, right through overflow and subnormals.
inline F scale_by_power(F x, F n) { return _mm512_scalef_ps(x, n); }
inline Mask first_lanes(int64_t n) { return static_cast<Mask>((1u << n) - 1u); }
inline Mask from_bits(std::uint32_t bits) { return static_cast<Mask>(bits); }
inline Mask greater(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Mask less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
/// x where the mask is set, 0 elsewhere.
inline F keep(Mask mask, F x) { return _mm512_maskz_mov_ps(mask, x); }
/// yes where the mask is set, no elsewhere.
inline F select(Mask mask, F yes, F no) { return _mm512_mask_mov_ps(no, mask, yes); }

/// Sum and maximum of the lanes, in one fixed order.
inline float reduce_add(F x) { return _mm512_reduce_add_ps(x); }
inline float reduce_max(F x) { return _mm512_reduce_max_ps(x); }

inline F widen(__m256i bits) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)); }
inline __m256i narrow_bf16(F x) {
  const I bits = _mm512_castps_si512(x);
  const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const I rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const Mask nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const I quiet = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(quiet, 16));
}
inline __m256i narrow_f16(F x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline F load(const BFloat16* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline F load(const Float16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline void store(BFloat16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(x)); }
inline void store(Float16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_f16(x)); }

/// The first n < kWidth elements; nothing behind them is touched, the other lanes are 0.
inline F load_first(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline F load_first(const BFloat16* p, int64_t n) { return widen(_mm256_maskz_loadu_epi16(first_lanes(n), p)); }
inline F load_first(const Float16* p, int64_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
inline void store_first(float* p, F x, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), x); }
inline void store_first(BFloat16* p, F x, int64_t n) { _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bf16(x)); }
inline void store_first(Float16* p, F x, int64_t n) { _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_f16(x)); }

// Two halves of eight doubles each.
struct Doubles {
  __m512d low, high;
};
inline Doubles zero_doubles() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
/// sum + x² in FP64.
inline Doubles add_square(Doubles sum, F x) {
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
  const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
  return {_mm512_fmadd_pd(low, low, sum.low), _mm512_fmadd_pd(high, high, sum.high)};
}
inline double reduce_add(Doubles x) { return _mm512_reduce_add_pd(_mm512_add_pd(x.low, x.high)); }

#else

using F = __m256;
using I = __m256i;
using Mask = __m256;  // all bits of a lane
constexpr int kWidth = 8;

inline F zero() { return _mm256_setzero_ps(); }
inline F broadcast(float x) { return _mm256_set1_ps(x); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm256_max_ps(a, b); }
inline F min(F a, F b) { return _mm256_min_ps(a, b); }
inline F sqrt(F x) { return _mm256_sqrt_ps(x); }
inline F round_to_integer(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F scale_by_power(F x, F n) {
  // In two halves, so that neither power leaves the exponent's range. The order of operands lets NaN pass.
  const F bounded = _mm256_min_ps(_mm256_set1_ps(252.0f), _mm256_max_ps(_mm256_set1_ps(-252.0f), n));
  const I whole = _mm256_cvtps_epi32(bounded);
  const I half = _mm256_srai_epi32(whole, 1);
  const I bias = _mm256_set1_epi32(127);
  const F first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const F second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23));
  return x * first * second;
}
inline Mask from_bits(std::uint32_t bits) {
  const I lane_bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_castsi256_ps(
      _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane_bit), lane_bit));
}
inline Mask first_lanes(int64_t n) {
  return _mm256_castsi256_ps(
      _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}
inline Mask greater(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
inline Mask less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline F keep(Mask mask, F x) { return _mm256_and_ps(mask, x); }
inline F select(Mask mask, F yes, F no) { return _mm256_blendv_ps(no, yes, mask); }

inline float reduce_add(F x) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
inline float reduce_max(F x) {
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}

inline F widen(__m128i bits) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)); }
inline __m128i narrow_bf16(F x) {
  const I bits = _mm256_castps_si256(x);
  const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const I rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const I quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const I nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const I upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}
inline __m128i narrow_f16(F x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline F load(const BFloat16* p) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline F load(const Float16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline void store(float* p, F x) { _mm256_storeu_ps(p, x); }
inline void store(BFloat16* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(x)); }
inline void store(Float16* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_f16(x)); }

template <class T>
inline F load_first(const T* p, int64_t n) {
  alignas(32) T part[kWidth] = {};
  for (int64_t i = 0; i < n; ++i) part[i] = p[i];
  return load(part);
}
template <class T>
inline void store_first(T* p, F x, int64_t n) {
  alignas(32) T part[kWidth];
  store(part, x);
  for (int64_t i = 0; i < n; ++i) p[i] = part[i];
}

struct Doubles {
  __m256d low, high;
};
inline Doubles zero_doubles() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
inline Doubles add_square(Doubles sum, F x) {
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
  return {_mm256_fmadd_pd(low, low, sum.low), _mm256_fmadd_pd(high, high, sum.high)};
}
inline double reduce_add(Doubles x) {
  const __m256d sum = _mm256_add_pd(x.low, x.high);
  const __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
  return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

#endif

/// How a register's worth of columns is read and written: whole, or the first n of the tail. Loops are written once for
/// both.
struct Whole {
  template <class T>
  F get(const T* p) const {
    return load(p);
  }
  template <class T>
  void put(T* p, F x) const {
    store(p, x);
  }
  F only(F x) const { return x; }
};
struct Tail {
  int64_t n;
  template <class T>
  F get(const T* p) const {
    return load_first(p, n);
  }
  template <class T>
  void put(T* p, F x) const {
    store_first(p, x, n);
  }
  /// x with zeros behind the end: what may enter a sum.
  F only(F x) const { return keep(first_lanes(n), x); }
};
/// Calls body(column, at) over the columns [0, n), a register at a time.
template <class Body>
[[gnu::always_inline]] inline void for_columns(int64_t n, Body&& body) {
  int64_t c = 0;
  for (; c + kWidth <= n; c += kWidth) body(c, Whole{});
  if (c < n) body(c, Tail{n - c});
}

/// Folds step(sum, column, at) over [0, n) in four interleaved sums, added pairwise: one order for each n.
template <class Step>
[[gnu::always_inline]] inline F sum_columns(int64_t n, Step&& step) {
  F a = zero(), b = zero(), c = zero(), d = zero();
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
    a = step(a, i, Whole{});
    b = step(b, i + kWidth, Whole{});
    c = step(c, i + 2 * kWidth, Whole{});
    d = step(d, i + 3 * kWidth, Whole{});
  }
  for (; i + kWidth <= n; i += kWidth) a = step(a, i, Whole{});
  if (i < n) b = step(b, i, Tail{n - i});
  return (a + b) + (c + d);
}

/// Calls body with a pointer tag of the storage type.
template <class Body>
[[gnu::always_inline]] inline void with_type(DType dtype, Body&& body) {
  if (dtype == DType::f32) body(static_cast<float*>(nullptr));
  if (dtype == DType::bf16) body(static_cast<BFloat16*>(nullptr));
  if (dtype == DType::f16) body(static_cast<Float16*>(nullptr));
}
template <class P>
struct Pointee;
template <class T>
struct Pointee<T*> {
  using type = T;
};
/// The storage type behind with_type's tag.
template <class P>
using StorageOf = typename Pointee<P>::type;

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
