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

/// Operation: kAhead, the groups of one thread; `load<kWidth>(std::int64_t i) const` gives what it needs of elements
/// i … i + kWidth − 1, `store<kWidth>(std::int64_t i, items, by) const` does them, by what `by()` found; `bool idle()
/// const`: change nothing, asked on the device.
///
/// The loads of a whole block are under way before the answer of idle() is waited for.
template <class Operation, bool kWide>
__global__ void __launch_bounds__(kFlatThreads) flat_kernel(Operation operation, std::int64_t n) {
  constexpr std::int64_t kBlock = kFlatElements * Operation::kAhead;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kBlock;
  if (kWide && first + kBlock <= n) {
    const std::int64_t own = first + threadIdx.x * kFlatGroup;
    decltype(operation.template load<kFlatGroup>(own)) items[Operation::kAhead];
#pragma unroll
    for (int k = 0; k < Operation::kAhead; ++k) items[k] = operation.template load<kFlatGroup>(own + k * kFlatElements);
    const auto by = operation.by();
    if (operation.idle()) return;
#pragma unroll
    for (int k = 0; k < Operation::kAhead; ++k) operation.store(own + k * kFlatElements, items[k], by);
    return;
  }
  if (operation.idle()) return;
  const auto by = operation.by();
  const std::int64_t end = first + kBlock < n ? first + kBlock : n;
#pragma unroll 4
  for (std::int64_t i = first + threadIdx.x; i < end; i += kFlatThreads) {
    operation.store(i, operation.template load<1>(i), by);
  }
}

/// Runs the operation on n elements. @param all_wide  whether every operand is wide().
template <class Operation>
void launch_flat(const char* name, const Operation& operation, std::int64_t n, bool all_wide, const Queue& queue) {
  if (n == 0) return;
  constexpr std::int64_t kBlock = kFlatElements * Operation::kAhead;
  const dim3 grid(static_cast<unsigned>((n + kBlock - 1) / kBlock));
  const auto kernel = all_wide ? flat_kernel<Operation, true> : flat_kernel<Operation, false>;
  launch(name, kernel, grid, dim3(kFlatThreads), 0, queue, operation, n);
}

}  // namespace espalier::kernels_fused::cuda
