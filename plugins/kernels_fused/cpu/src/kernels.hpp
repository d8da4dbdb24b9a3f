#pragma once

#include <memory>
#include <vector>

#include "lanes.hpp"
#include "matrix.hpp"

/// The families that run on the SIMD kernels of simd/: each cuts its rows or elements into blocks by shape and hands
/// them to the pool.
namespace espalier::kernels_fused {

class FusedAttention final : public AttentionKernels {
 public:
  FusedAttention(const SimdTable& simd, Lanes& lanes) : ops_(simd.attention), lanes_(lanes) {}
  Reason supports(const Attention& shape) const override;
  std::size_t saved_bytes(const Attention& shape) const override;
  std::size_t workspace(const Attention& shape) const override;
  void forward(const Attention& args, Stream& stream) override;
  void backward(const AttentionGradient& args, Stream& stream) override;

 private:
  const AttentionOps& ops_;
  Lanes& lanes_;
};

class FusedNorm final : public NormKernels {
 public:
  FusedNorm(const SimdTable& simd, Lanes& lanes) : ops_(simd.norm), lanes_(lanes) {}
  Reason supports(DType working, std::int64_t hidden) const override;
  std::size_t workspace(std::int64_t tokens, std::int64_t hidden) const override;
  void forward(const LayerNorm& args, Stream& stream) override;
  void backward(const LayerNormGradient& args, Stream& stream) override;

 private:
  const NormOps& ops_;
  Lanes& lanes_;
  std::vector<float> partial_;  // [row blocks, 2, hidden]: parts of the weight's and the bias' gradient
};

class FusedElementwise final : public ElementwiseKernels {
 public:
  FusedElementwise(const SimdTable& simd, Lanes& lanes) : ops_(simd.elementwise), pool_(lanes.pool()) {}
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
  void add(const View& a, const View& b, const View& dst, Stream& stream) override;
  void scale(const View& src, float factor, const View& dst, Stream& stream) override;

 private:
  const ElementwiseOps& ops_;
  ThreadPool& pool_;
};

class FusedLoss final : public LossKernels {
 public:
  FusedLoss(const SimdTable& simd, Lanes& lanes) : ops_(simd.loss), pool_(lanes.pool()) {}
  Reason supports(DType working) const override;
  void row_max(const View& logits, std::int64_t valid, const View& row_max, Stream& stream) override;
  void exp_sum(const View& logits, std::int64_t valid, const View& row_max, const View& targets, std::int64_t first_id,
               const View& sum_exp, const View& target_logit, Stream& stream) override;
  void gradient(const View& logits, std::int64_t valid, const View& row_max, const View& sum_exp,
                const View& target_logit, const View& targets, std::int64_t first_id, float scale, const View& loss,
                const View& grad, Stream& stream) override;
  void accumulate(const View& loss, const View& targets, const View& slots, Stream& stream) override;

 private:
  const LossOps& ops_;
  ThreadPool& pool_;
};

class FusedUpdate final : public UpdateKernels {
 public:
  FusedUpdate(const SimdTable& simd, Lanes& lanes, FusedMatrix& matrix, UpdateKernels& plain)
      : ops_(simd.update), pool_(lanes.pool()), matrix_(matrix), plain_(plain) {}
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
  const UpdateOps& ops_;
  ThreadPool& pool_;
  FusedMatrix& matrix_;
  UpdateKernels& plain_;
  std::vector<double> partial_;  // one sum of squares a block
};

}  // namespace espalier::kernels_fused
