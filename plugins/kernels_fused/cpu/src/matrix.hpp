#pragma once

#include "lanes.hpp"
#include "onednn.hpp"

namespace espalier::kernels_fused {

/// GEMM by oneDNN, one thread a tile of the result; tiles are cut by shape alone and never along K, so that no sum
/// depends on the number of threads. BF16 goes to oneDNN as it is where the instruction set multiplies BF16; elsewhere,
/// and FP16 everywhere, blocks of the operands are widened to FP32 in the cache, multiplied in FP32 and rounded once on
/// store.
class FusedMatrix final : public MatrixKernels {
 public:
  FusedMatrix(InstructionSet set, OneDnn& onednn, Lanes& lanes)
      : set_(set), simd_(simd_table(set)), onednn_(onednn), lanes_(lanes) {}

  Reason supports(DType working) const override;
  std::size_t workspace(const Matmul& shape) const override;
  void matmul(const Matmul& args, Stream& stream) override;
  void column_sum(const View& src, const View& dst, bool accumulate, Stream& stream) override;

  /// dst = alpha · op(a) · op(b) + beta · dst in FP32: UpdateKernels::gemm.
  void gemm(const View& a, bool transpose_a, const View& b, bool transpose_b, double alpha, double beta,
            const View& dst);

 private:
  bool direct(const Matmul& args) const;
  void multiply_direct(const Matmul& args);
  void multiply_widened(const Matmul& args);

  InstructionSet set_;
  const SimdTable& simd_;
  OneDnn& onednn_;
  Lanes& lanes_;
};

}  // namespace espalier::kernels_fused
