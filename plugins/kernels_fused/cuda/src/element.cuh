#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "compat.cuh"
#include "espalier/error.hpp"
#include "espalier/tensor.hpp"

namespace espalier::kernels_fused::cuda {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }

/// Rounds to nearest even.
template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    static_assert(std::is_same_v<T, float>);
    return x;
  }
}

/// Elements of one 16-byte access.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// What moves a pack of so many bytes: 16 at a time, or all of them when they are fewer.
template <std::size_t kBytes>
using PackAccess = std::conditional_t<kBytes == 4, unsigned, std::conditional_t<kBytes == 8, uint2, uint4>>;

/// N consecutive elements as they lie in memory, in words of 32 bits: two of a 16-bit type share a register, from the
/// load to the store. N * sizeof(T) is 4, 8 or a multiple of 16 bytes.
template <class T, int N = kPack<T>>
struct alignas(PackAccess<N * sizeof(T)>) Pack {
  static_assert(N * sizeof(T) % sizeof(PackAccess<N * sizeof(T)>) == 0);
  static constexpr int kInWord = 4 / static_cast<int>(sizeof(T));
  std::uint32_t words[N / kInWord] = {};

  /// The pack of these values, rounded.
  __device__ __forceinline__ static Pack of(const float (&values)[N]) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < N; i += kInWord) {
      if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        *reinterpret_cast<__nv_bfloat162*>(&pack.words[i / 2]) = __floats2bfloat162_rn(values[i], values[i + 1]);
      } else if constexpr (std::is_same_v<T, __half>) {
        *reinterpret_cast<__half2*>(&pack.words[i / 2]) = __floats2half2_rn(values[i], values[i + 1]);
      } else {
        pack.set(i, values[i]);
      }
    }
    return pack;
  }

  __device__ __forceinline__ float operator[](int i) const { return to_float(element(i)); }
  __device__ __forceinline__ void set(int i, float x) { set_element(i, from_float<T>(x)); }

  __device__ __forceinline__ T element(int i) const {
    if constexpr (kInWord == 1) {
      return std::bit_cast<T>(words[i]);
    } else {
      return std::bit_cast<T>(static_cast<std::uint16_t>(words[i / 2] >> i % 2 * 16));
    }
  }
  __device__ __forceinline__ void set_element(int i, T x) {
    if constexpr (kInWord == 1) {
      words[i] = std::bit_cast<std::uint32_t>(x);
    } else {
      const std::uint32_t other = words[i / 2] & (i % 2 == 0 ? 0xffff0000u : 0x0000ffffu);
      words[i / 2] = other | std::uint32_t{std::bit_cast<std::uint16_t>(x)} << i % 2 * 16;
    }
  }
};

/// Loads N elements, of which `left` exist; the others are zeros.
/// @param aligned  whether `from` is a multiple of 16 bytes: the same for a whole launch (see aligned_rows), so that
///                 branches stay together. Which elements a thread holds does not depend on it, so neither do results.
template <class T, int N = kPack<T>>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from, std::int64_t left, bool aligned) {
  using Access = PackAccess<N * sizeof(T)>;
  constexpr int kWords = sizeof(Access) / 4, kInAccess = kWords * Pack<T, N>::kInWord;
  Pack<T, N> pack;
  if (aligned && left >= N) {
#pragma unroll
    for (int i = 0; i < N / kInAccess; ++i) {
      *reinterpret_cast<Access*>(&pack.words[i * kWords]) = ALIGNED_ACCESS(const Access, from + i * kInAccess);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < left) pack.set_element(i, from[i]);
    }
  }
  return pack;
}

/// Stores the first `left` of N elements.
template <class T, int N>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& pack, std::int64_t left, bool aligned) {
  using Access = PackAccess<N * sizeof(T)>;
  constexpr int kWords = sizeof(Access) / 4, kInAccess = kWords * Pack<T, N>::kInWord;
  if (aligned && left >= N) {
#pragma unroll
    for (int i = 0; i < N / kInAccess; ++i) {
      ALIGNED_STORE(Access, to + i * kInAccess, *reinterpret_cast<const Access*>(&pack.words[i * kWords]));
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < left) to[i] = pack.element(i);
    }
  }
}

/// Whether 16-byte accesses fit every row of the view. A view without memory (an operand left out) fits.
inline bool aligned_rows(const View& view) {
  const bool start = reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
  return start && (view.rows <= 1 || static_cast<std::size_t>(view.row_stride) * size_of(view.dtype) % 16 == 0);
}
template <class... Views>
bool aligned_rows(const View& view, const Views&... others) {
  return aligned_rows(view) && (aligned_rows(others) && ...);
}

/// Calls body with a value of the element type of a working dtype (f32, bf16, f16): with_element(dtype, [&](auto
/// element) { using T = decltype(element); … }).
template <class Body>
void with_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(__nv_bfloat16{});
    case DType::f16:
      return body(__half{});
    default:
      ESPALIER_ASSERT(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16);
  }
}

}  // namespace espalier::kernels_fused::cuda
