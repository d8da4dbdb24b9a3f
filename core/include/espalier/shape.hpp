#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "espalier/error.hpp"
#include "espalier/export.hpp"

namespace espalier {

/// Up to four dimensions, row-major, held by value (no heap).
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    ESPALIER_ASSERT(dims.size() <= kMaxRank);
    for (int i = 0; i < rank_; ++i) dims_[i] = dims[i];
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[i]; }
  std::int64_t& operator[](int i) { return dims_[i]; }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  /// First dimension of a matrix; 1 for a vector, so that a vector is one row.
  std::int64_t rows() const { return rank_ >= 2 ? dims_[0] : 1; }
  /// Elements of one row.
  std::int64_t cols() const { return rows() == 0 ? 0 : elements() / rows(); }

  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// "[2, 3]".
ESPALIER_API std::string to_string(const Shape& shape);

}  // namespace espalier
