#pragma once

#include "compat.cuh"

// Reductions in an order fixed by the number of threads alone; every thread gets the result.
namespace espalier::kernels_fused::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Of all 32 lanes of the calling warp, by butterfly.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}

/// NaN wins, as everywhere in the kernels: a maximum that hides it would hide a broken row.
__device__ __forceinline__ float max_or_nan(float a, float b) { return a != a || a > b ? a : b; }

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value = max_or_nan(value, __shfl_xor_sync(kAllLanes, value, lanes));
  return value;
}

/// Of a block of kThreads threads (threadIdx.x), a multiple of 32. A block of one warp needs no barrier, so that warps
/// of a larger block may each call it with kThreads = 32.
/// @param slots  shared array of 32 T (SMEM_ARRAY), free for use again after the next call or barrier.
template <int kThreads, class T, class Slots>
__device__ __forceinline__ T block_sum(T value, Slots slots) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);
  value = warp_sum(value);
  if constexpr (kThreads > 32) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncthreads();  // the slots may still be read for the sum before
    if (lane == 0) slots[threadIdx.x / 32] = value;
    __syncthreads();
    value = lane < kThreads / 32 ? static_cast<T>(slots[lane]) : T(0);
    value = warp_sum(value);
  }
  return value;
}

template <int kThreads, class Slots>
__device__ __forceinline__ float block_max(float value, Slots slots) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);
  value = warp_max(value);
  if constexpr (kThreads > 32) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncthreads();  // the slots may still be read for the maximum before
    if (lane == 0) slots[threadIdx.x / 32] = value;
    __syncthreads();
    value = static_cast<float>(slots[lane < kThreads / 32 ? lane : 0]);
    value = warp_max(value);
  }
  return value;
}

}  // namespace espalier::kernels_fused::cuda
