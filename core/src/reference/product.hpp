#pragma once

#include "espalier/tensor.hpp"
#include "espalier/threads.hpp"

namespace espalier::reference {

/// op(a) · op(b) in FP32, each sum over K in ascending order.
struct Product {
  const View& a;
  bool transpose_a;
  const View& b;
  bool transpose_b;

  std::int64_t rows() const { return transpose_a ? a.cols : a.rows; }
  std::int64_t cols() const { return transpose_b ? b.rows : b.cols; }
  std::int64_t depth() const { return transpose_a ? a.rows : a.cols; }
};

/// store(row, column, n, sums): takes n finished sums of one row, and may change them in place.
using StoreSums = FunctionRef<void(std::int64_t row, std::int64_t column, std::int64_t n, float* sums)>;

void multiply(ThreadPool& pool, const Product& product, StoreSums store);

}  // namespace espalier::reference
