#include "column_sum.hpp"

#include "element.cuh"
#include "launch.cuh"
#include "stream.hpp"

// Sums of columns: bias gradients. A block sums kRows rows of a strip of columns: each of its kLayers rows of threads
// adds every kLayers-th row in ascending order, then the layers are added in ascending order. Which rows a block has
// depends on the shape alone.
namespace espalier::kernels_fused::cuda {
namespace {

constexpr int kWide = 32;      // threads side by side, a pack of columns each
constexpr int kLayers = 8;     // rows of threads
constexpr int kRows = 128;     // rows a block sums
constexpr int kThreads = 128;  // of the second stage

template <class T>
__global__ void __launch_bounds__(kWide* kLayers)
    sum_blocks(const T* src, std::int64_t rows, std::int64_t cols, std::int64_t stride, bool aligned, bool accumulate,
               float* dst) {
  constexpr int kColumns = kPack<T>;
  SMEM_ARRAY(float, sums, kLayers* kWide* kColumns);
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kWide + threadIdx.x) * kColumns;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * kRows;
  const std::int64_t end = begin + kRows < rows ? begin + kRows : rows;
  float own[kColumns] = {};
  if (first < cols) {
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kLayers) {
      const Pack<T> pack = load_pack(src + row * stride + first, cols - first, aligned);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) own[i] += pack[i];
    }
  }
  // Neighbouring threads store to neighbouring words.
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sums[(threadIdx.y * kColumns + i) * kWide + threadIdx.x] = own[i];
  __syncthreads();
  // All threads finish columns: column i of the pack of thread x.
  for (unsigned at = threadIdx.y * kWide + threadIdx.x; at < kColumns * kWide; at += kLayers * kWide) {
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kWide + at % kWide) * kColumns + at / kWide;
    if (column >= cols) continue;
    float sum = 0;
    for (unsigned layer = 0; layer < kLayers; ++layer) sum += sums[layer * kColumns * kWide + at];
    float* to = dst + static_cast<std::int64_t>(blockIdx.y) * cols + column;
    *to = accumulate ? *to + sum : sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    sum_partials(const float* partials, std::int64_t blocks, std::int64_t cols, bool accumulate, float* dst) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= cols) return;
  float sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += partials[block * cols + column];
  dst[column] = accumulate ? dst[column] + sum : sum;
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads) convert_elements(const From* src, std::int64_t n, To* dst) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) dst[i] = from_float<To>(to_float(src[i]));
}

__global__ void __launch_bounds__(kThreads) add_elements(const float* src, std::int64_t n, bool adds, float* dst) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) dst[i] = adds ? dst[i] + src[i] : src[i];
}

unsigned blocks_for(std::int64_t n, std::int64_t each) { return static_cast<unsigned>((n + each - 1) / each); }

}  // namespace

std::size_t sum_workspace(std::int64_t rows, std::int64_t columns) {
  return rows <= kRows ? 0 : static_cast<std::size_t>((rows + kRows - 1) / kRows * columns) * sizeof(float);
}

void sum_columns(const View& src, const View& dst, bool accumulate, Scratch& scratch, Stream& stream) {
  with_element(src.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr std::int64_t kMostBlocks = 65535;  // of a grid's y
    const std::int64_t blocks = blocks_for(src.rows, kRows);
    ESPALIER_ASSERT(blocks <= kMostBlocks);
    const bool one = blocks == 1;
    float* partials =
        one ? dst.as<float>() : reinterpret_cast<float*>(scratch.bytes(sum_workspace(src.rows, src.cols), stream));
    const dim3 grid(blocks_for(src.cols, std::int64_t{kWide} * kPack<T>), static_cast<unsigned>(blocks));
    launch("column_sum", sum_blocks<T>, grid, dim3(kWide, kLayers), 0, handle(stream), src.as<T>(), src.rows, src.cols,
           src.row_stride, aligned_rows(src), one && accumulate, partials);
    if (!one) {
      launch("column_sum_partials", sum_partials, dim3(blocks_for(src.cols, kThreads)), dim3(kThreads), 0,
             handle(stream), partials, blocks, src.cols, accumulate, dst.as<float>());
    }
  });
}

void add_vector(const View& src, const View& dst, bool adds, Stream& stream) {
  const std::int64_t n = src.elements();
  launch("add_vector", add_elements, dim3(blocks_for(n, kThreads)), dim3(kThreads), 0, handle(stream),
         src.as<const float>(), n, adds, dst.as<float>());
}

void convert(const View& src, const View& dst, Stream& stream) {
  with_element(src.dtype, [&](auto from) {
    with_element(dst.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      launch("convert", convert_elements<From, To>, dim3(blocks_for(dst.cols, kThreads)), dim3(kThreads), 0,
             handle(stream), src.as<From>(), dst.cols, dst.as<To>());
    });
  });
}

}  // namespace espalier::kernels_fused::cuda
