#pragma once

#include "espalier/kernels.hpp"
#include "gemm.hpp"
#include "scratch.hpp"

namespace espalier::kernels_fused::cuda {

/// Matrix products by cuBLASLt; sums of columns by a kernel of our own in two stages of fixed order.
class CudaMatrix final : public MatrixKernels {
 public:
  /// All kept by reference.
  CudaMatrix(Device& device, Gemm& gemm, Scratch& scratch) : device_(device), gemm_(gemm), scratch_(scratch) {}

  Reason supports(DType working) const override;
  std::size_t workspace(const Matmul& shape) const override;
  void matmul(const Matmul& args, Stream& stream) override;
  void column_sum(const View& src, const View& dst, bool accumulate, Stream& stream) override;
  std::size_t sum_workspace(std::int64_t rows, std::int64_t columns) const override;

 private:
  View aligned_bias(const View& bias, DType dtype, Stream& stream);

  Device& device_;
  Gemm& gemm_;
  Scratch& scratch_;
};

}  // namespace espalier::kernels_fused::cuda
