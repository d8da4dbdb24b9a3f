#pragma once

#include "model/context.hpp"

namespace espalier::app {

/// Positions in the rank's parameter list.
struct AttentionParameters {
  int norm_weight = -1, norm_bias = -1;
  int qkv_weight = -1, qkv_bias = -1;
  int out_weight = -1, out_bias = -1;
};

/// What the input half of attention needs besides the inputs of its linear maps.
struct AttentionSaved {
  View mean, rstd;  ///< [outside] f32
  View qkv;         ///< [inside, 3 own hidden], per head its q, then k, then v
  View kept;        ///< u8, what the kernels keep; empty with recomputation
};

/// The kernel arguments for interleaved QKV of whole samples; `saved` left empty.
Attention training_attention(const ModelContext& context, const Tokens& tokens, int layer, const View& qkv,
                             const View& out);

/// First part of the forward: normed = norm(src), saved.qkv = its projection.
void attention_projection(const ModelContext& context, const Tokens& tokens, const AttentionParameters& parameters,
                          const View& src, const View& normed, const AttentionSaved& saved);
/// Last part of the forward: dst = src + dropout(dense(attended) + bias).
void attention_output(const ModelContext& context, const Tokens& tokens, int layer,
                      const AttentionParameters& parameters, const View& src, const View& attended, const View& dst);

/// dst = src + dropout(dense(attention(norm(src))) + bias); normed [outside, hidden] and attended [inside, own hidden]
/// are written too.
void attention_forward(const ModelContext& context, const Tokens& tokens, int layer,
                       const AttentionParameters& parameters, const View& src, const View& normed, const View& attended,
                       const AttentionSaved& saved, const View& dst);

/// grad_dst → grad_src, with norm and bias gradients; out_grad (may alias grad_dst) and qkv_grad are what the weight
/// half needs. `meanwhile` is called when both are ready and the gradient of the input is being summed.
void attention_backward_input(const ModelContext& context, const Tokens& tokens, int layer,
                              const AttentionParameters& parameters, const View& src, const View& attended,
                              const AttentionSaved& saved, const View& grad_dst, const View& out_grad,
                              const View& qkv_grad, const View& grad_src, int micro_batch,
                              BiasSums sums, FunctionRef<void()> meanwhile);

void attention_backward_weight(const ModelContext& context, const Tokens& tokens, const AttentionParameters& parameters,
                               const View& normed, const View& attended, const View& out_grad, const View& qkv_grad,
                               int micro_batch, BiasSums sums);

}  // namespace espalier::app
