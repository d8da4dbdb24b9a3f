#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "espalier/dtype.hpp"
#include "espalier/shape.hpp"

namespace espalier {

/// A matrix in somebody else's memory: rows × cols elements, rows `row_stride` elements apart. A vector is one row.
/// The pointer may be device memory; only kernels and Device::copy look behind it.
struct View {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  DType dtype = DType::f32;

  static View matrix(void* data, std::int64_t rows, std::int64_t cols, DType dtype) {
    return {data, rows, cols, cols, dtype};
  }
  static View vector(void* data, std::int64_t n, DType dtype) { return {data, 1, n, n, dtype}; }

  bool empty() const { return rows == 0 || cols == 0; }
  explicit operator bool() const { return data != nullptr; }
  std::int64_t elements() const { return rows * cols; }
  bool contiguous() const { return rows <= 1 || row_stride == cols; }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }

  /// Unchecked typed access to host memory.
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  template <class T>
  T* row(std::int64_t r) const {
    return static_cast<T*>(data) + r * row_stride;
  }
  std::byte* at(std::int64_t row, std::int64_t col) const {
    return static_cast<std::byte*>(data) + static_cast<std::size_t>(row * row_stride + col) * size_of(dtype);
  }

  View row_range(std::int64_t begin, std::int64_t end) const {
    return {at(begin, 0), end - begin, cols, row_stride, dtype};
  }
  View col_range(std::int64_t begin, std::int64_t end) const {
    return {at(0, begin), rows, end - begin, row_stride, dtype};
  }
  /// All elements as one row; contiguous views only.
  View flat() const { return {data, 1, rows * cols, rows * cols, dtype}; }
  View flat_range(std::int64_t begin, std::int64_t end) const {
    return {static_cast<std::byte*>(data) + static_cast<std::size_t>(begin) * size_of(dtype), 1, end - begin, end - begin,
            dtype};
  }
};

template <class T>
std::span<T> as_span(const View& view) {
  return {view.as<T>(), static_cast<std::size_t>(view.elements())};
}

}  // namespace espalier
