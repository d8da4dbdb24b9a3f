#pragma once

#include "espalier/kernels.hpp"

namespace espalier::kernels_fused::cuda {

class Scratch;

/// Kernels over the elements of a matrix, one pass each, and the embedding with its gradient.
class CudaElementwise final : public ElementwiseKernels {
 public:
  /// Kept by reference; embedding_backward alone asks for scratch (see embedding.cu).
  explicit CudaElementwise(Scratch& scratch) : scratch_(scratch) {}

  Reason supports(DType working) const override;
  void bias_gelu(const View& src, const View& bias, const View& dst, Stream& stream) override;
  void bias_gelu_backward(const View& grad_dst, const View& src, const View& bias, const View& grad_src,
                          Stream& stream) override;
  void bias_dropout_add(const View& src, const View& bias, const View& residual, const Dropout& dropout,
                        const View& dst, Stream& stream) override;
  void dropout_backward(const View& grad_dst, const Dropout& dropout, const View& grad_src, Stream& stream) override;
  void embedding(const View& ids, const View& table, std::int64_t first_id, const View& dst, Stream& stream) override;
  void embedding_backward(const View& ids, const View& grad_dst, std::int64_t first_id, const View& grad_table,
                          Stream& stream) override;
  std::size_t embedding_workspace(std::int64_t tokens, std::int64_t table_rows) const override;
  void add(const View& a, const View& b, const View& dst, Stream& stream) override;
  void scale(const View& src, float factor, const View& dst, Stream& stream) override;

 private:
  Scratch& scratch_;
};

}  // namespace espalier::kernels_fused::cuda
