#pragma once

#include "espalier/kernels.hpp"

namespace espalier::kernels_fused::cuda {

class BatchedGemm;
class Scratch;

/// What an optimizer does to memory. Flat kernels of one pass; the arithmetic is the reference's, operation for
/// operation and without fused multiply-adds, so that element-wise results have its bits.
class CudaUpdate final : public UpdateKernels {
 public:
  /// Both are kept by reference.
  CudaUpdate(BatchedGemm& gemm, Scratch& scratch) : gemm_(gemm), scratch_(scratch) {}

  /// Scratch bytes of any call.
  static std::size_t workspace();

  void adamw(const AdamW& args, Stream& stream) override;
  void scale(const View& x, double a, const float* factor, const std::int32_t* skip, Stream& stream) override;
  void lerp(const View& x, const View& y, double t, const float* factor, const std::int32_t* skip,
            Stream& stream) override;
  void sign(const View& x, const View& dst, const std::int32_t* skip, Stream& stream) override;
  void axpy(double a, const View& x, const View& y, const View& working, const float* factor, const std::int32_t* skip,
            Stream& stream) override;
  void gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
            const View& dst, Stream& stream) override;
  void squared_sum(const View& x, double* slot, Stream& stream) override;
  void verdict(const VerdictRule& rule, float* factor, std::int32_t* skip, Stream& stream) override;

 private:
  BatchedGemm& gemm_;
  Scratch& scratch_;
};

}  // namespace espalier::kernels_fused::cuda
