#include "model/mlp.hpp"

namespace espalier::app {

void mlp_forward(const ModelContext& context, const Tokens& tokens, int layer, const MlpParameters& parameters,
                 const View& src, const View& normed, const View& activated, const MlpSaved& saved, const View& dst) {
  Stream& stream = *context.stream;
  norm_forward(context, src, parameters.norm_weight, parameters.norm_bias, saved.mean, saved.rstd, normed);
  {
    Border border(context, tokens);
    linear(context, border.enter(normed, Pass::forward), parameters.up_weight, {}, saved.up);
  }
  context.kernels.elementwise->bias_gelu(saved.up, context.weight(parameters.up_bias), activated, stream);
  if (dst.empty()) return;

  // The product may lie where the sum will be.
  const bool in_place = tokens.inside == tokens.outside && context.partial() == dst.dtype;
  Temporary memory(*context.arena);
  if (!in_place) memory.open(static_cast<std::size_t>(tokens.inside * dst.cols) * size_of(context.partial()));
  const View product = in_place ? dst : memory.matrix(tokens.inside, dst.cols, context.partial());
  linear(context, activated, parameters.down_weight, {}, product);
  Border border(context, tokens);
  context.kernels.elementwise->bias_dropout_add(
      border.leave(product, Pass::forward), context.weight(parameters.down_bias), src,
      hidden_dropout(context, tokens, layer, DropoutSite::mlp_out), dst, stream);
}

void mlp_backward_input(const ModelContext& context, const Tokens& tokens, int layer, const MlpParameters& parameters,
                        const View& src, const MlpSaved& saved, const View& grad_dst, const View& down_grad,
                        const View& up_grad, const View& grad_src, int micro_batch, FunctionRef<void()> meanwhile) {
  dropped_gradient(context, tokens, hidden_dropout(context, tokens, layer, DropoutSite::mlp_out), parameters.down_bias,
                   grad_dst, down_grad, micro_batch);
  linear_backward_input(context, down_grad, parameters.down_weight, up_grad);
  context.kernels.elementwise->bias_gelu_backward(up_grad, saved.up, context.weight(parameters.up_bias), up_grad,
                                                  *context.stream);
  bias_backward(context, up_grad, parameters.up_bias, micro_batch);

  Temporary memory(*context.arena, static_cast<std::size_t>(tokens.inside * src.cols) * size_of(context.partial()));
  const View normed_grad = memory.matrix(tokens.inside, src.cols, context.partial());
  linear_backward_input(context, up_grad, parameters.up_weight, normed_grad);
  Border border(context, tokens);
  norm_backward(context, border.enter(normed_grad, Pass::backward, meanwhile), src, parameters.norm_weight,
                parameters.norm_bias, saved.mean, saved.rstd, grad_dst, grad_src, micro_batch);
}

void mlp_backward_weight(const ModelContext& context, const Tokens& tokens, const MlpParameters& parameters,
                         const View& normed, const View& activated, const View& down_grad, const View& up_grad,
                         int micro_batch) {
  linear_backward_weight(context, down_grad, activated, parameters.down_weight, micro_batch);
  Border border(context, tokens);
  linear_backward_weight(context, up_grad, border.enter(normed, Pass::forward), parameters.up_weight, micro_batch);
}

}  // namespace espalier::app
