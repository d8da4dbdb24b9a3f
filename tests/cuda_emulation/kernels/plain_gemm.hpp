#pragma once

#include "batched_gemm.hpp"
#include "espalier/dtype.hpp"

namespace espalier::testing {

/// Products by plain loops over host memory, at once: what the library does on a GPU.
class PlainGemm final : public kernels_fused::cuda::BatchedGemm {
 public:
  void multiply(const kernels_fused::cuda::BatchedProduct& product, Stream&) override {
    with_float_type(product.a.dtype, [&](auto source) {
      with_float_type(product.dst.dtype, [&](auto target) {
        for (std::int64_t i = 0; i < product.count; ++i) one<decltype(source), decltype(target)>(product, i);
      });
    });
  }

 private:
  template <class Source, class Target>
  static void one(const kernels_fused::cuda::BatchedProduct& p, std::int64_t index) {
    const Source* a = p.a.as<Source>() + index * p.a_stride;
    const Source* b = p.b.as<Source>() + index * p.b_stride;
    const std::int64_t a_row = p.transpose_a ? 1 : p.a.row_stride, a_inner = p.transpose_a ? p.a.row_stride : 1;
    const std::int64_t b_col = p.transpose_b ? p.b.row_stride : 1, b_inner = p.transpose_b ? 1 : p.b.row_stride;
    const std::int64_t inner = p.transpose_a ? p.a.rows : p.a.cols;
    for (std::int64_t row = 0; row < p.dst.rows; ++row) {
      Target* to = p.dst.row<Target>(row) + index * p.dst_stride;
      for (std::int64_t col = 0; col < p.dst.cols; ++col) {
        float sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) {
          sum += to_float(a[row * a_row + k * a_inner]) * to_float(b[col * b_col + k * b_inner]);
        }
        to[col] = from_float<Target>(p.alpha * sum + (p.beta == 0 ? 0.0f : p.beta * to_float(to[col])));
      }
    }
  }
};

}  // namespace espalier::testing
