#pragma once

// Device functions under their CUDA names. Included by device_code.hpp.
#include <bit>
#include <cmath>
#include <cstdint>

#include "cuda_emulation/block.hpp"

inline void __syncthreads(cuda_emulation::Location at = ESPALIER_HERE) {
  cuda_emulation::barrier(cuda_emulation::Vote::none, 0, at);
}
inline int __syncthreads_count(int predicate, cuda_emulation::Location at = ESPALIER_HERE) {
  return cuda_emulation::barrier(cuda_emulation::Vote::count, predicate, at);
}
inline int __syncthreads_and(int predicate, cuda_emulation::Location at = ESPALIER_HERE) {
  return cuda_emulation::barrier(cuda_emulation::Vote::all, predicate, at);
}
inline int __syncthreads_or(int predicate, cuda_emulation::Location at = ESPALIER_HERE) {
  return cuda_emulation::barrier(cuda_emulation::Vote::any, predicate, at);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, cuda_emulation::Location at = ESPALIER_HERE) {
  cuda_emulation::meet(mask, 0, cuda_emulation::Collective::sync, at);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, cuda_emulation::Location at = ESPALIER_HERE) {
  const unsigned lane = cuda_emulation::current->lane, segment = static_cast<unsigned>(width);
  const unsigned from = lane / segment * segment + static_cast<unsigned>(source) % segment;
  return cuda_emulation::shuffle(mask, value, from, cuda_emulation::Collective::shuffle, at);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, cuda_emulation::Location at = ESPALIER_HERE) {
  const unsigned lane = cuda_emulation::current->lane, segment = static_cast<unsigned>(width);
  const unsigned from = lane ^ static_cast<unsigned>(lanes);
  return cuda_emulation::shuffle(mask, value, from / segment <= lane / segment ? from : lane,
                                 cuda_emulation::Collective::shuffle_xor, at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32,
                   cuda_emulation::Location at = ESPALIER_HERE) {
  const unsigned lane = cuda_emulation::current->lane, segment = static_cast<unsigned>(width);
  const unsigned from = lane + lanes;
  return cuda_emulation::shuffle(mask, value, from / segment == lane / segment ? from : lane,
                                 cuda_emulation::Collective::shuffle_down, at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32, cuda_emulation::Location at = ESPALIER_HERE) {
  const unsigned lane = cuda_emulation::current->lane, segment = static_cast<unsigned>(width);
  return cuda_emulation::shuffle(mask, value, lanes <= lane % segment ? lane - lanes : lane,
                                 cuda_emulation::Collective::shuffle_up, at);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, cuda_emulation::Location at = ESPALIER_HERE) {
  const std::uint64_t* votes =
      cuda_emulation::meet(mask, predicate != 0 ? 1 : 0, cuda_emulation::Collective::ballot, at);
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0 && votes[lane] != 0) result |= 1u << lane;
  }
  return result;
}
inline int __any_sync(unsigned mask, int predicate, cuda_emulation::Location at = ESPALIER_HERE) {
  return __ballot_sync(mask, predicate, at) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate, cuda_emulation::Location at = ESPALIER_HERE) {
  return __ballot_sync(mask, predicate, at) == mask ? 1 : 0;
}

// Atomics on integers alone: on floats the order of the sum would depend on the order of the threads.
template <class T>
T atomicAdd(T* address, T value) {
  static_assert(std::is_integral_v<T>, "no atomics on floating-point numbers: the sum's order must be fixed");
  const T old = *address;
  *address = old + value;
  return old;
}
template <class T>
T atomicMax(T* address, T value) {
  static_assert(std::is_integral_v<T>);
  const T old = *address;
  if (value > old) *address = value;
  return old;
}
template <class T>
T atomicOr(T* address, T value) {
  static_assert(std::is_integral_v<T>);
  const T old = *address;
  *address = old | value;
  return old;
}
inline void __threadfence() {}

template <class T>
T __ldg(const T* pointer) {
  return *pointer;
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : 1 + std::countr_zero(static_cast<unsigned>(x)); }
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
