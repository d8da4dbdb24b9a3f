#pragma once

#include "espalier/kernels.hpp"
#include "scratch.hpp"

namespace espalier::kernels_fused::cuda {

/// LayerNorm of any hidden size, alignment and row stride.
class CudaNorm final : public NormKernels {
 public:
  /// @param scratch  of the compute stream; outlives this.
  explicit CudaNorm(Scratch& scratch) : scratch_(scratch) {}

  Reason supports(DType working, std::int64_t hidden) const override;
  std::size_t workspace(std::int64_t tokens, std::int64_t hidden) const override;
  void forward(const LayerNorm& args, Stream& stream) override;
  void backward(const LayerNormGradient& args, Stream& stream) override;

 private:
  Scratch& scratch_;
};

}  // namespace espalier::kernels_fused::cuda
