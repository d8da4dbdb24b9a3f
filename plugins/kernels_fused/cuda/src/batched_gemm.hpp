#pragma once

#include <cstdint>

#include "espalier/device.hpp"
#include "espalier/tensor.hpp"

namespace espalier::kernels_fused::cuda {

/// Products of `count` pairs of matrices of one shape: dst = op(a) · op(b), scaled by alpha, plus beta · dst. The views
/// are the first ones, the others lie a stride (in elements) further each.
struct BatchedProduct {
  View a;    ///< op(a) is [M, K]
  View b;    ///< op(b) is [K, N], dtype of a
  View dst;  ///< [M, N], dtype of a or f32
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1.0f;
  float beta = 0.0f;  ///< not 0: dst is f32. With 0 the old contents, NaN included, do not count
  std::int64_t count = 1;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t dst_stride = 0;
};

class BatchedGemm {
 public:
  virtual ~BatchedGemm() = default;
  /// Sums in FP32. The shape alone decides the order.
  virtual void multiply(const BatchedProduct& product, Stream& stream) = 0;
};

}  // namespace espalier::kernels_fused::cuda
