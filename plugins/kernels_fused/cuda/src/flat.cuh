#pragma once

#include <cstdint>

#include "compat.cuh"
#include "launch.cuh"

/// Element-wise kernels over contiguous vectors: an operation says what happens to one group of elements, this header
/// cuts the vectors into groups.
namespace espalier::kernels_fused::cuda {

/// kWidth neighbouring elements, moved by one access.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Group {
  T value[kWidth];
};

template <int kWidth, class T>
__device__ inline Group<T, kWidth> load_group(const T* from) {
  using Whole = const Group<T, kWidth>;
  return ALIGNED_ACCESS(Whole, from);
}

template <class T, int kWidth>
__device__ inline void store_group(T* to, const Group<T, kWidth>& group) {
  using Whole = Group<T, kWidth>;
  ALIGNED_ACCESS(Whole, to) = group;
}

inline constexpr int kFlatThreads = 256;
inline constexpr int kFlatGroup = 4;                                      ///< elements of one wide access
inline constexpr std::int64_t kFlatElements = kFlatThreads * kFlatGroup;  ///< of one block

/// Whether groups of kFlatGroup elements at `pointer` may be moved by one access.
template <class T>
bool wide(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % (sizeof(T) * kFlatGroup) == 0;
}

/// Operation: `bool idle() const` (change nothing, asked on the device), `at<kWidth>(std::int64_t i) const` does
/// elements i … i + kWidth − 1.
template <class Operation, bool kWide>
__global__ void __launch_bounds__(kFlatThreads) flat_kernel(Operation operation, std::int64_t n) {
  if (operation.idle()) return;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kFlatElements;
  if constexpr (kWide) {
    const std::int64_t i = first + threadIdx.x * kFlatGroup;
    if (i + kFlatGroup <= n) {
      operation.template at<kFlatGroup>(i);
    } else {
      for (std::int64_t j = i; j < n; ++j) operation.template at<1>(j);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kFlatGroup; ++k) {
      const std::int64_t i = first + k * kFlatThreads + threadIdx.x;
      if (i < n) operation.template at<1>(i);
    }
  }
}

/// Runs the operation on n elements. @param all_wide  whether every operand is wide().
template <class Operation>
void launch_flat(const char* name, const Operation& operation, std::int64_t n, bool all_wide, cudaStream_t stream) {
  if (n == 0) return;
  const dim3 grid(static_cast<unsigned>((n + kFlatElements - 1) / kFlatElements));
  if (all_wide) {
    launch(name, flat_kernel<Operation, true>, grid, dim3(kFlatThreads), 0, stream, operation, n);
  } else {
    launch(name, flat_kernel<Operation, false>, grid, dim3(kFlatThreads), 0, stream, operation, n);
  }
}

}  // namespace espalier::kernels_fused::cuda
