#pragma once

#include "espalier/kernels.hpp"
#include "gemm.hpp"
#include "scratch.hpp"

namespace espalier::kernels_fused::cuda {

/// Matrix products by cuBLASLt; sums of columns by a kernel of our own in two stages of fixed order.
///
/// In the same pass, where cuBLASLt takes the shape: GELU in its tanh form, of the FP32 sum with its bias, rounded
/// once, while what goes into it is rounded for itself; the product of the FP32 sum and the derivative at the rounded
/// value that was kept, rounded once; bias gradients in FP32, summed in cuBLASLt's order. cuBLASLt overwrites these, so
/// one that is added to is made in scratch and added by a kernel.
class CudaMatrix final : public MatrixKernels {
 public:
  /// All kept by reference.
  /// @param epilogues  whether products do more than multiply and add a bias
  CudaMatrix(Device& device, Gemm& gemm, Scratch& scratch, bool epilogues)
      : device_(device), gemm_(gemm), scratch_(scratch), epilogues_(epilogues) {}

  Reason supports(DType working) const override;
  std::size_t workspace(const Matmul& shape) const override;
  bool fuses(const Matmul& shape) const override;
  void matmul(const Matmul& args, Stream& stream) override;
  void column_sum(const View& src, const View& dst, bool accumulate, Stream& stream) override;
  /// The plan that matmul() needs.
  static ProductKey key_of(const Matmul& shape);
  std::size_t sum_workspace(std::int64_t rows, std::int64_t columns) const override;

 private:
  Device& device_;
  Gemm& gemm_;
  Scratch& scratch_;
  bool epilogues_;
};

}  // namespace espalier::kernels_fused::cuda
