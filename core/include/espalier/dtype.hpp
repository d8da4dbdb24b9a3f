#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "espalier/export.hpp"

namespace espalier {

enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, i64, u8 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

/// "f32", "bf16", …: the names used in recipes, manifests and messages.
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "f16", "f64", "i32", "i64", "u8"};
  return kNames[static_cast<std::size_t>(dtype)];
}

/// BFloat16 storage: the upper half of an FP32 number. Arithmetic happens in FP32.
struct BFloat16 {
  std::uint16_t bits;
};

/// IEEE binary16 storage. Overflows to infinity above 65,504 (65,520 and more after rounding).
struct Float16 {
  std::uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

/// Exact for every finite value, subnormals included; NaN keeps its sign and quiet bit.
inline float to_float(Float16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // 2^112 moves the exponent bias from 15 to 127 and normalises subnormals in the same multiplication.
  const float shifted = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) | sign);
}

/// Round to nearest, ties to even; NaN stays NaN (quiet).
inline BFloat16 to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

/// Round to nearest, ties to even; overflow gives infinity; subnormals are kept.
inline Float16 to_f16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // 65,520 and above
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the subnormal's bits, rounded, at the end of the mantissa
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u))};
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
}

/// Conversion by type, for templates over storage types.
template <class T>
inline T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline BFloat16 from_float<BFloat16>(float x) {
  return to_bf16(x);
}
template <>
inline Float16 from_float<Float16>(float x) {
  return to_f16(x);
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};

/// Calls `body(T{})` with the storage type of a floating dtype of weights and activations (f32, bf16, f16).
/// Returns false, without a call, for any other dtype.
template <class Body>
bool with_float_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: body(float{}); return true;
    case DType::bf16: body(BFloat16{}); return true;
    case DType::f16: body(Float16{}); return true;
    default: return false;
  }
}

}  // namespace espalier
