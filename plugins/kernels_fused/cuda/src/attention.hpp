#pragma once

#include "batched_gemm.hpp"
#include "espalier/kernels.hpp"

namespace espalier::kernels_fused::cuda {

class Scratch;

/// Attention as matrix products over all heads at once with the softmax between them in kernels of our own. Takes every
/// length, head size and dropout. Keeps two floats a row for backward, which makes the scores again.
///
/// Scores exist for a block of queries and some heads at a time, in FP32, and only up to the last key that the block
/// may see: memory does not grow with the square of the length, and about half of the masked products is never made.
class CudaAttention final : public AttentionKernels {
 public:
  struct Limits {
    std::int64_t query_block = 512;
    std::int64_t scores = std::int64_t{1} << 24;  ///< FP32 numbers at a time; one row at least
  };

  /// Both are kept by reference.
  CudaAttention(BatchedGemm& gemm, Scratch& scratch) : gemm_(gemm), scratch_(scratch) {}
  CudaAttention(BatchedGemm& gemm, Scratch& scratch, Limits limits) : gemm_(gemm), scratch_(scratch), limits_(limits) {}

  Reason supports(const Attention& shape) const override;
  std::size_t saved_bytes(const Attention& shape) const override;
  std::size_t workspace(const Attention& shape) const override;
  void forward(const Attention& args, Stream& stream) override;
  void backward(const AttentionGradient& args, Stream& stream) override;

 private:
  BatchedGemm& gemm_;
  Scratch& scratch_;
  Limits limits_;
};

}  // namespace espalier::kernels_fused::cuda
