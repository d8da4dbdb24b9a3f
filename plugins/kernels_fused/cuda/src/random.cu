#include "random.hpp"

#include <cmath>
#include <numbers>

#include "compat.cuh"
#include "element.cuh"
#include "launch.cuh"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__device__ T round_once(double x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return static_cast<float>(x);
  } else {
    return from_float<T>(round_to_odd(x));
  }
}

/// Of x half turns, 0 <= x < 2. The device's functions of an angle in radians keep a table of pi on the stack for huge
/// ones.
__device__ inline void sine_cosine(double x, double* sine, double* cosine) {
#ifdef __CUDACC__
  sincospi(x, sine, cosine);
#else
  *sine = sin(std::numbers::pi * x);
  *cosine = cos(std::numbers::pi * x);
#endif
}

template <class T>
struct Pair {
  T even, odd;
};

template <class T>
struct Normal {
  double mean, std;

  __device__ Pair<T> operator()(const PhiloxCounter& words) const {
    const double u1 = (random_mantissa(words[0], words[1]) + 1.0) * 0x1p-53;  // (0, 1]: the logarithm stays finite
    const double u2 = random_mantissa(words[2], words[3]) * 0x1p-53;
    const double radius = sqrt(-2.0 * log(u1));
    double sine, cosine;
    sine_cosine(2.0 * u2, &sine, &cosine);
    return {round_once<T>(mean + std * (radius * cosine)), round_once<T>(mean + std * (radius * sine))};
  }
};

template <class T>
struct Uniform {
  double low, high;

  __device__ Pair<T> operator()(const PhiloxCounter& words) const {
    return {draw(random_mantissa(words[0], words[1])), draw(random_mantissa(words[2], words[3]))};
  }
  __device__ T draw(double integer) const {
    const T value = round_once<T>(low + (high - low) * (integer * 0x1p-53));
    return to_float(value) < high ? value : next_below(value);  // rounding may have reached the open end
  }
};

/// One thread a block of the generator, which gives two neighbouring elements. Element (r, c) of dst is number
/// first + r · cols + c.
template <class T, class Draw>
__global__ void __launch_bounds__(kThreads)
    random_kernel(T* dst, std::int64_t rows, std::int64_t cols, std::int64_t row_stride, PhiloxKey key,
                  std::int64_t first, Draw draw) {
  const std::int64_t n = rows * cols;
  const std::int64_t block = first / 2 + static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t i = 2 * block - first;
  if (i >= n) return;
  const auto number = static_cast<std::uint64_t>(block);
  const PhiloxCounter words =
      philox(key, {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0});
  const Pair<T> pair = draw(words);
  if (i >= 0) dst[i / cols * row_stride + i % cols] = pair.even;
  if (i + 1 < n) dst[(i + 1) / cols * row_stride + (i + 1) % cols] = pair.odd;
}

template <class T, class Draw>
void generate(const char* name, const View& dst, PhiloxKey key, std::int64_t first, const Draw& draw, Stream& stream) {
  if (dst.empty()) return;
  const std::int64_t blocks = (first + dst.elements() + 1) / 2 - first / 2;
  const dim3 grid(static_cast<unsigned>((blocks + kThreads - 1) / kThreads));
  launch(name, random_kernel<T, Draw>, grid, dim3(kThreads), 0, handle(stream), dst.as<T>(), dst.rows, dst.cols,
         dst.row_stride, key, first, draw);
}

}  // namespace

void CudaRandom::normal(const View& dst, PhiloxKey key, std::int64_t first, double mean, double std, Stream& stream) {
  with_element(dst.dtype, [&](auto type) {
    using T = decltype(type);
    generate<T>("normal", dst, key, first, Normal<T>{mean, std}, stream);
  });
}

void CudaRandom::uniform(const View& dst, PhiloxKey key, std::int64_t first, double low, double high, Stream& stream) {
  with_element(dst.dtype, [&](auto type) {
    using T = decltype(type);
    generate<T>("uniform", dst, key, first, Uniform<T>{low, high}, stream);
  });
}

}  // namespace espalier::kernels_fused::cuda
