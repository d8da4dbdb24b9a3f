#pragma once

#include "simd/vector.hpp"

namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {

/// High and low halves of the 32-bit products of all lanes.
struct Product {
  I high, low;
};

#if defined(__AVX512F__)

constexpr int kMaskElements = 64;  // 16 Philox blocks of four words
using MaskBits = std::uint64_t;

inline I integers(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
inline I xor_of(I a, I b) { return _mm512_xor_si512(a, b); }
inline I count_from(std::uint32_t first) {
  return _mm512_add_epi32(integers(first), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
inline Product multiply(I x, I factor) {
  const I even = _mm512_mul_epu32(x, factor);
  const I odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), factor);
  constexpr __mmask16 kOdd = 0xaaaa;
  return {_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), kOdd, odd),
          _mm512_mask_mov_epi32(even, kOdd, _mm512_slli_epi64(odd, 32))};
}
/// One bit a lane: word >= threshold, unsigned.
inline std::uint64_t at_least(I word, std::uint32_t threshold) {
  return _mm512_cmpge_epu32_mask(word, integers(threshold));
}
inline MaskBits spread(std::uint64_t bits, int word) {
  return _pdep_u64(bits, std::uint64_t{0x1111111111111111} << word);
}

#else

constexpr int kMaskElements = 32;
using MaskBits = std::uint32_t;

inline I integers(std::uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
inline I xor_of(I a, I b) { return _mm256_xor_si256(a, b); }
inline I count_from(std::uint32_t first) {
  return _mm256_add_epi32(integers(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Product multiply(I x, I factor) {
  const I even = _mm256_mul_epu32(x, factor);
  const I odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), factor);
  return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa),
          _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa)};
}
inline std::uint32_t at_least(I word, std::uint32_t threshold) {
  const I most = _mm256_max_epu32(word, integers(threshold));
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(most, word))));
}
inline MaskBits spread(std::uint32_t bits, int word) { return _pdep_u32(bits, 0x11111111u << word); }

#endif

/// Which of kMaskElements neighbouring elements are kept: bit i for element 4 · block + i of the Philox counters
/// {block + i / 4, c1, c2, c3}, word i % 4 (espalier/random.hpp).
inline MaskBits kept(std::uint32_t key0, std::uint32_t key1, std::uint32_t block, std::uint32_t c1, std::uint32_t c2,
                     std::uint32_t c3, std::uint32_t threshold) {
  I w0 = count_from(block), w1 = integers(c1), w2 = integers(c2), w3 = integers(c3);
  const I factor0 = integers(0xD2511F53u), factor1 = integers(0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const Product p0 = multiply(w0, factor0);
    const Product p1 = multiply(w2, factor1);
    w0 = xor_of(xor_of(p1.high, w1), integers(key0));
    w1 = p1.low;
    w2 = xor_of(xor_of(p0.high, w3), integers(key1));
    w3 = p0.low;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return spread(at_least(w0, threshold), 0) | spread(at_least(w1, threshold), 1) | spread(at_least(w2, threshold), 2) |
         spread(at_least(w3, threshold), 3);
}

/// The mask of register `i` within the bits.
inline Mask part_of(MaskBits bits, int i) { return from_bits(static_cast<std::uint32_t>(bits >> (i * kWidth))); }

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
