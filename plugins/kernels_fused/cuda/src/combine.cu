// Reductions in rank order. Each thread joins 16 bytes of every rank's piece; elements do not meet, so any cut of the
// work gives the same bits.
#include "combine.hpp"

#include <algorithm>
#include <type_traits>

#include "element.cuh"
#include "launch.cuh"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocks = 1024;
constexpr int kAhead = 4;  ///< ranks whose chunks are loaded before the first is joined

template <class T>
inline constexpr bool kNarrow = std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half>;
template <class T>
using Wide = std::conditional_t<kNarrow<T>, float, T>;

template <class T>
__device__ __forceinline__ Wide<T> widen(T x) {
  if constexpr (kNarrow<T>) {
    return to_float(x);
  } else {
    return x;
  }
}
template <class T>
__device__ __forceinline__ T narrow(Wide<T> x) {
  if constexpr (kNarrow<T>) {
    return from_float<T>(x);
  } else {
    return x;
  }
}

template <class T, bool kMax>
__device__ __forceinline__ Wide<T> join(Wide<T> a, Wide<T> b) {
  if constexpr (kMax) {
    return b > a || b != b ? b : a;
  } else {
    return static_cast<Wide<T>>(a + b);
  }
}

/// One chunk of 16 bytes, of which `left` elements exist.
template <class T>
struct Chunk {
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  alignas(16) T v[kElements];

  __device__ __forceinline__ void load(const T* from, std::int64_t left, bool aligned) {
    if (aligned && left >= kElements) {
      *reinterpret_cast<uint4*>(v) = ALIGNED_ACCESS(const uint4, from);
    } else {
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        if (i < left) v[i] = from[i];
      }
    }
  }
  __device__ __forceinline__ void store(T* to, std::int64_t left, bool aligned) const {
    if (aligned && left >= kElements) {
      ALIGNED_STORE(uint4, to, *reinterpret_cast<const uint4*>(v));
    } else {
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        if (i < left) to[i] = v[i];
      }
    }
  }
};

template <class T, bool kMax>
__global__ void __launch_bounds__(kThreads)
    combine_pieces(const T* own, const T* others, T* dst, std::int64_t elements, int rank, int size, bool aligned) {
  constexpr int kElements = Chunk<T>::kElements;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads * kElements;
  for (std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kElements; at < elements;
       at += step) {
    const std::int64_t left = elements - at;
    Wide<T> sum[kElements] = {};
    for (int first = 0; first < size; first += kAhead) {
      Chunk<T> chunks[kAhead] = {};
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int r = first + k;
        if (r >= size) break;
        const T* const piece = r == rank ? own : others + (r < rank ? r : r - 1) * elements;
        chunks[k].load(piece + at, left, aligned);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (first + k >= size) break;
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          const Wide<T> x = widen<T>(chunks[k].v[i]);
          sum[i] = first + k == 0 ? x : join<T, kMax>(sum[i], x);
        }
      }
    }
    Chunk<T> result{};
#pragma unroll
    for (int i = 0; i < kElements; ++i) result.v[i] = narrow<T>(sum[i]);
    result.store(dst + at, left, aligned);
  }
}

template <class T>
void combine_as(const Pieces& pieces, Reduce how, void* dst, cudaStream_t stream) {
  const auto fits = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  // The pieces of the others start where the one before ends.
  const bool aligned = fits(pieces.own) && fits(pieces.others) && fits(dst) &&
                       (pieces.size <= 2 || pieces.elements * static_cast<std::int64_t>(sizeof(T)) % 16 == 0);
  const std::int64_t chunks = (pieces.elements + Chunk<T>::kElements - 1) / Chunk<T>::kElements;
  const dim3 grid(static_cast<unsigned>(std::min((chunks + kThreads - 1) / kThreads, kBlocks)));
  const auto* const own = static_cast<const T*>(pieces.own);
  const auto* const others = static_cast<const T*>(pieces.others);
  if (how == Reduce::max) {
    launch("combine_max", combine_pieces<T, true>, grid, dim3(kThreads), 0, stream, own, others, static_cast<T*>(dst),
           pieces.elements, pieces.rank, pieces.size, aligned);
  } else {
    launch("combine_sum", combine_pieces<T, false>, grid, dim3(kThreads), 0, stream, own, others, static_cast<T*>(dst),
           pieces.elements, pieces.rank, pieces.size, aligned);
  }
}

}  // namespace

void combine(const Pieces& pieces, Reduce how, DType dtype, void* dst, cudaStream_t stream) {
  if (pieces.elements == 0) return;
  switch (dtype) {
    case DType::f32:
      return combine_as<float>(pieces, how, dst, stream);
    case DType::bf16:
      return combine_as<__nv_bfloat16>(pieces, how, dst, stream);
    case DType::f16:
      return combine_as<__half>(pieces, how, dst, stream);
    case DType::f64:
      return combine_as<double>(pieces, how, dst, stream);
    case DType::i32:
      return combine_as<std::int32_t>(pieces, how, dst, stream);
    case DType::i64:
      return combine_as<std::int64_t>(pieces, how, dst, stream);
    case DType::u8:
      return combine_as<std::uint8_t>(pieces, how, dst, stream);
  }
}

}  // namespace espalier::kernels_fused::cuda
