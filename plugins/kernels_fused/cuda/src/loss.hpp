#pragma once

#include "espalier/kernels.hpp"

namespace espalier::kernels_fused::cuda {

/// Cross entropy over FP32 logits. Maximum and sum: a block a row, in an order that only the number of columns decides.
class CudaLoss final : public LossKernels {
 public:
  Reason supports(DType working) const override;
  void row_max(const View& logits, std::int64_t valid, const View& row_max, Stream& stream) override;
  void exp_sum(const View& logits, std::int64_t valid, const View& row_max, const View& targets, std::int64_t first_id,
               const View& sum_exp, const View& target_logit, Stream& stream) override;
  void gradient(const View& logits, std::int64_t valid, const View& row_max, const View& sum_exp,
                const View& target_logit, const View& targets, std::int64_t first_id, float scale, const View& loss,
                const View& grad, Stream& stream) override;
  /// The sum is the reference's to the bit: one thread adds, the others fetch ahead of it.
  void accumulate(const View& loss, const View& targets, const View& slots, Stream& stream) override;
};

}  // namespace espalier::kernels_fused::cuda
