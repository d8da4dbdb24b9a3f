#pragma once

#include "simd/vector.hpp"

namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL {

/// e^x within 2 ulp; 0 and infinity at the ends, NaN stays NaN. Cody-Waite reduction to |r| <= ln 2 / 2, then the
/// polynomial of degree 6 of Cephes' expf (Moshier 1992).
inline F exp(F x) {
  const F bounded = max(broadcast(-110.0f), min(broadcast(100.0f), x));  // NaN is the second operand and passes
  const F n = round_to_integer(bounded * broadcast(1.44269504088896341f));
  F r = fnma(n, broadcast(0.693359375f), bounded);
  r = fnma(n, broadcast(-2.12194440e-4f), r);
  F p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  return scale_by_power(fma(p, r * r, r + broadcast(1.0f)), n);
}

inline constexpr float kGeluInner = 0.79788456f;  // sqrt(2 / pi), as BLOOM has it
inline constexpr float kGeluCubic = 0.044715f;

/// 0.5 x (1 + tanh(u)) = x / (1 + e^(−2u)), u = 0.79788456 x (1 + 0.044715 x²): one exponential, no cancellation for x
/// < 0.
inline F gelu(F x) {
  const F inner = broadcast(-2.0f * kGeluInner) * x * fma(broadcast(kGeluCubic) * x, x, broadcast(1.0f));
  return x / (broadcast(1.0f) + exp(inner));
}

/// Derivative of gelu: s + 2 x s (1 − s) u', s = 1 / (1 + e^(−2u)), u' = 0.79788456 (1 + 3 · 0.044715 x²).
inline F gelu_derivative(F x) {
  const F one = broadcast(1.0f);
  const F square = x * x;
  const F inner = broadcast(-2.0f * kGeluInner) * x * fma(broadcast(kGeluCubic), square, one);
  const F s = one / (one + exp(inner));
  const F slope = broadcast(2.0f * kGeluInner) * fma(broadcast(3.0f * kGeluCubic), square, one);
  return fma(x * s * (one - s), slope, s);
}

}  // namespace espalier::kernels_fused::ESPALIER_SIMD_LEVEL
