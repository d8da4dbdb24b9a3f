#pragma once

#include "model/context.hpp"

namespace espalier::app {

/// Positions in the rank's parameter list.
struct MlpParameters {
  int norm_weight = -1, norm_bias = -1;
  int up_weight = -1, up_bias = -1;
  int down_weight = -1, down_bias = -1;
};

/// What the input half of the MLP needs besides the inputs of its linear maps.
struct MlpSaved {
  View mean, rstd;  ///< [outside] f32
  View up;          ///< [inside, own ffn] before bias and GELU; where GELU is part of the product, bias included
};

/// dst = src + dropout(down(gelu(up(norm(src)))) + bias); normed and activated are written too. An empty dst stops
/// after `activated` (recomputation needs no output).
void mlp_forward(const ModelContext& context, const Tokens& tokens, int layer, const MlpParameters& parameters,
                 const View& src, const View& normed, const View& activated, const MlpSaved& saved, const View& dst);

/// grad_dst → grad_src, with norm and bias gradients; down_grad (may alias grad_dst) and up_grad are what the weight
/// half needs. `meanwhile` is called when both are ready and the gradient of the input is being summed.
void mlp_backward_input(const ModelContext& context, const Tokens& tokens, int layer, const MlpParameters& parameters,
                        const View& src, const MlpSaved& saved, const View& grad_dst, const View& down_grad,
                        const View& up_grad, const View& grad_src, int micro_batch, BiasSums sums,
                        FunctionRef<void()> meanwhile);

void mlp_backward_weight(const ModelContext& context, const Tokens& tokens, const MlpParameters& parameters,
                         const View& normed, const View& activated, const View& down_grad, const View& up_grad,
                         int micro_batch, BiasSums sums);

}  // namespace espalier::app
