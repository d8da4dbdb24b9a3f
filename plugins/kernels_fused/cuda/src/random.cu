#include "random.hpp"

#include <bit>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "compat.cuh"
#include "element.cuh"
#include "launch.cuh"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

constexpr int kThreads = 256;

/// Rounds once. A detour over FP32 would round twice, unless its last bit remembers that something was cut off (round
/// to odd).
template <class T>
__device__ T round_once(double x) {
  const auto nearest = static_cast<float>(x);
  if constexpr (sizeof(T) == sizeof(float)) {
    return nearest;
  } else {
    const double error = x - static_cast<double>(nearest);
    auto bits = std::bit_cast<std::uint32_t>(nearest);
    if (error != 0.0 && std::isfinite(nearest) && bits % 2 == 0) bits += (error > 0) == (nearest > 0) ? 1u : ~0u;
    return from_float<T>(std::bit_cast<float>(bits));
  }
}

/// The next smaller number of the type.
template <class T>
__device__ T below(T x) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(float), std::uint32_t, std::uint16_t>;
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  const auto bits = std::bit_cast<Bits>(x);
  if (bits == 0 || bits == kSign) return std::bit_cast<T>(static_cast<Bits>(kSign + 1));
  return std::bit_cast<T>(static_cast<Bits>((bits & kSign) != 0 ? bits + 1 : bits - 1));
}

/// The upper 53 bits of two words, low word first: an integer below 2^53.
__device__ inline double mantissa(std::uint32_t low, std::uint32_t high) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11);
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
    const double u1 = (mantissa(words[0], words[1]) + 1.0) * 0x1p-53;  // (0, 1]: the logarithm stays finite
    const double u2 = mantissa(words[2], words[3]) * 0x1p-53;
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
    return {draw(mantissa(words[0], words[1])), draw(mantissa(words[2], words[3]))};
  }
  __device__ T draw(double integer) const {
    const T value = round_once<T>(low + (high - low) * (integer * 0x1p-53));
    return to_float(value) < high ? value : below(value);  // rounding may have reached the open end
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
