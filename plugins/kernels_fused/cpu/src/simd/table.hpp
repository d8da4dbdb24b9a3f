#pragma once

#include <cstddef>
#include <cstdint>

#include "espalier/kernels.hpp"

/// What the sources of simd/ offer, once a level: functions over a range of rows or elements, called on the pool's
/// threads. None allocates; ranges are cut by the caller by shape alone.
namespace espalier::kernels_fused {

/// Rows of a matrix that may be stored in another type, to and from FP32 scratch.
struct ConvertOps {
  /// dst[i] = src[i] for n elements, any of f32, bf16, f16 each.
  void (*convert)(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t n);
  /// dst[i] = src[i] + bias[i], one rounding; bias may be null.
  void (*add_bias)(const float* src, const void* bias, DType bias_type, void* dst, DType dst_type, std::int64_t n);
  /// dst[c] (+)= Σ_r src[r, c]: rows in ascending order, in partial sums of kSumRows rows.
  void (*column_sum)(const View& src, float* dst, bool accumulate);
};
inline constexpr std::int64_t kSumRows = 64;

struct NormOps {
  void (*forward)(const LayerNorm& args, std::int64_t begin, std::int64_t end);
  /// @param partial  [2, hidden] f32, overwritten: this range's part of grad_weight, then of grad_bias.
  void (*backward)(const LayerNormGradient& args, std::int64_t begin, std::int64_t end, float* partial);
  /// dst[c] (+)= Σ_b partial[b · stride + c] for c in [begin, end), b ascending.
  void (*combine)(const float* partial, std::int64_t parts, std::int64_t stride, std::int64_t begin, std::int64_t end,
                  bool accumulate, float* dst);
};

/// Rows [begin, end) of each view.
struct ElementwiseOps {
  void (*bias_gelu)(const View& src, const View& bias, const View& dst, std::int64_t begin, std::int64_t end);
  void (*bias_gelu_backward)(const View& grad_dst, const View& src, const View& bias, const View& grad_src,
                             std::int64_t begin, std::int64_t end);
  void (*bias_dropout_add)(const View& src, const View& bias, const View& residual, const Dropout& dropout,
                           const View& dst, std::int64_t begin, std::int64_t end);
  void (*dropout_backward)(const View& grad_dst, const Dropout& dropout, const View& grad_src, std::int64_t begin,
                           std::int64_t end);
  /// b may be empty.
  void (*add)(const View& a, const View& b, const View& dst, std::int64_t begin, std::int64_t end);
  void (*scale)(const View& src, float factor, const View& dst, std::int64_t begin, std::int64_t end);
  /// dst[i] += src[i]: one token's row, or a part of it.
  void (*accumulate)(const void* src, DType src_type, float* dst, std::int64_t n);
};

struct LossOps {
  void (*row_max)(const View& logits, std::int64_t valid, float* row_max, std::int64_t begin, std::int64_t end);
  void (*exp_sum)(const View& logits, std::int64_t valid, const float* row_max, float* sum_exp, std::int64_t begin,
                  std::int64_t end);
  /// One row: grad[c] = exp(logits[c] − row_max) · factor for c < valid, 0 behind; target column (or −1) minus scale.
  void (*gradient_row)(const float* logits, std::int64_t valid, float row_max, float factor, std::int64_t target,
                       float scale, void* grad, DType grad_type, std::int64_t cols);
};

/// AdamW with the step's constants already in FP32.
struct AdamWStep {
  const float* gradient;
  float* master;
  float* moment1;
  float* moment2;
  void* working;  ///< null: none
  DType working_type;
  float factor, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, rate, root, eps;
};

struct UpdateOps {
  void (*adamw)(const AdamWStep& step, std::int64_t begin, std::int64_t end);
  void (*scale)(float* x, float a, std::int64_t n);
  void (*lerp)(float* x, const float* y, float t, float factor, std::int64_t n);
  void (*sign)(const float* x, float* dst, std::int64_t n);
  void (*axpy)(float a, const float* x, float* y, void* working, DType working_type, std::int64_t n);
  double (*squared_sum)(const float* x, std::int64_t n);
};

/// One (sample, head): scratch of scratch_floats() floats, 64-byte aligned.
struct AttentionOps {
  std::size_t (*scratch_floats)(const Attention& shape, bool backward);
  void (*forward)(const Attention& args, std::int64_t sample, std::int64_t head, float* scratch);
  void (*backward)(const AttentionGradient& args, std::int64_t sample, std::int64_t head, float* scratch);
};

struct SimdTable {
  ConvertOps convert;
  NormOps norm;
  ElementwiseOps elementwise;
  LossOps loss;
  UpdateOps update;
  AttentionOps attention;
};

namespace avx2 {
extern const ConvertOps kConvertOps;
extern const NormOps kNormOps;
extern const ElementwiseOps kElementwiseOps;
extern const LossOps kLossOps;
extern const UpdateOps kUpdateOps;
extern const AttentionOps kAttentionOps;
}  // namespace avx2
namespace avx512 {
extern const ConvertOps kConvertOps;
extern const NormOps kNormOps;
extern const ElementwiseOps kElementwiseOps;
extern const LossOps kLossOps;
extern const UpdateOps kUpdateOps;
extern const AttentionOps kAttentionOps;
}  // namespace avx512

}  // namespace espalier::kernels_fused
