#pragma once

#include <algorithm>
#include <cstdint>

#include "espalier/error.hpp"
#include "espalier/reason.hpp"
#include "espalier/tensor.hpp"
#include "espalier/threads.hpp"

/// What the plain-loop kernels share. Work is cut into items by the shape alone, and each item sums in ascending order,
/// so that results do not depend on the number of threads.
namespace espalier::reference {

inline constexpr std::int64_t kRowBlock = 8;      ///< rows of one item of a row-wise kernel
inline constexpr std::int64_t kColumnBlock = 64;  ///< columns of one item of a column sum
inline constexpr std::int64_t kFlatBlock = 4096;  ///< elements of one item of a flat kernel

constexpr std::int64_t blocks(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }

/// An optional operand that was given.
inline bool present(const View& view) { return view.data != nullptr && !view.empty(); }

inline bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

/// The answer of every family's supports().
inline Reason needs_float(DType working) {
  if (is_float(working)) return {};
  return "the reference kernels compute in f32, bf16 and f16, not in " + std::string(name_of(working));
}

/// with_float_type for operands that must have such a type.
template <class Body>
void with_type(DType dtype, Body&& body) {
  ESPALIER_ASSERT(is_float(dtype));
  with_float_type(dtype, body);
}

/// Calls body(begin, end) for blocks of [0, n), on the pool.
template <class Body>
void for_blocks(ThreadPool& pool, std::int64_t n, std::int64_t block, Body&& body) {
  if (n <= 0) return;
  pool.run(blocks(n, block), [&](std::int64_t i) { body(i * block, std::min(n, (i + 1) * block)); });
}

/// Calls body(row) for each row.
template <class Body>
void for_rows(ThreadPool& pool, std::int64_t rows, Body&& body) {
  for_blocks(pool, rows, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

/// Σ term(i) in FP32: blocks of 1,024 in eight lanes, which keeps the rounding error of long rows small.
template <class Term>
float sum(std::int64_t n, Term&& term) {
  constexpr std::int64_t kBlock = 1024;
  constexpr std::int64_t kLanes = 8;
  float total = 0.0f;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = std::min(n, begin + kBlock);
    float lanes[kLanes] = {};
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    }
    for (std::int64_t lane = 0; i < end; ++i, ++lane) lanes[lane] += term(i);
    total += ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
  }
  return total;
}

/// out[i] = view[row, column + i] for i < n, widened.
inline void widen(const View& view, std::int64_t row, std::int64_t column, std::int64_t n, float* out) {
  with_type(view.dtype, [&](auto type) {
    const auto* src = view.row<decltype(type)>(row) + column;
    for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(src[i]);
  });
}

/// view[row, column + i] = in[i] for i < n, rounded to nearest even.
inline void narrow(const float* in, std::int64_t n, const View& view, std::int64_t row, std::int64_t column) {
  with_type(view.dtype, [&](auto type) {
    using T = decltype(type);
    T* dst = view.row<T>(row) + column;
    for (std::int64_t i = 0; i < n; ++i) dst[i] = from_float<T>(in[i]);
  });
}

}  // namespace espalier::reference
