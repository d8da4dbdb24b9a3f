#include "model/mlp.hpp"

namespace espalier::app {
namespace {

bool fuses_gelu(const ModelContext& context, const MlpParameters& parameters, std::int64_t rows) {
  return app::fuses_gelu(context, rows, parameters.up_weight, parameters.up_bias, parameters.down_weight);
}

}  // namespace

void mlp_forward(const ModelContext& context, const Tokens& tokens, int layer, const MlpParameters& parameters,
                 const View& src, const View& normed, const View& activated, const MlpSaved& saved, const View& dst) {
  norm_forward(context, src, parameters.norm_weight, parameters.norm_bias, saved.mean, saved.rstd, normed);
  const View bias = context.weight(parameters.up_bias);
  {
    Border border(context, tokens);
    const View inner = border.enter(normed, Pass::forward);
    if (fuses_gelu(context, parameters, inner.rows)) {
      linear_gelu(context, inner, parameters.up_weight, bias, saved.up, activated);
    } else {
      linear(context, inner, parameters.up_weight, {}, saved.up);
      context.kernels.elementwise->bias_gelu(saved.up, bias, activated, *context.stream);
    }
  }
  if (dst.empty()) return;

  row_parallel_residual(context, tokens, activated, parameters.down_weight, parameters.down_bias, src,
                        hidden_dropout(context, tokens, layer, DropoutSite::mlp_out), dst);
}

void mlp_backward_input(const ModelContext& context, const Tokens& tokens, int layer, const MlpParameters& parameters,
                        const View& src, const MlpSaved& saved, const View& grad_dst, const View& down_grad,
                        const View& up_grad, const View& grad_src, int micro_batch, BiasSums sums,
                        FunctionRef<void()> meanwhile) {
  dropped_gradient(context, tokens, hidden_dropout(context, tokens, layer, DropoutSite::mlp_out), parameters.down_bias,
                   grad_dst, down_grad, micro_batch);
  if (fuses_gelu(context, parameters, saved.up.rows)) {
    linear_backward_input(context, down_grad, parameters.down_weight, up_grad, saved.up);
  } else {
    linear_backward_input(context, down_grad, parameters.down_weight, up_grad);
    context.kernels.elementwise->bias_gelu_backward(up_grad, saved.up, context.weight(parameters.up_bias), up_grad,
                                                    *context.stream);
  }
  if (sums == BiasSums::input_half) bias_backward(context, up_grad, parameters.up_bias, micro_batch);

  column_parallel_backward_input(context, tokens, up_grad, parameters.up_weight, src, parameters.norm_weight,
                                 parameters.norm_bias, saved.mean, saved.rstd, grad_dst, grad_src, micro_batch,
                                 meanwhile);
}

void mlp_backward_weight(const ModelContext& context, const Tokens& tokens, const MlpParameters& parameters,
                         const View& normed, const View& activated, const View& down_grad, const View& up_grad,
                         int micro_batch, BiasSums sums) {
  linear_backward_weight(context, down_grad, activated, parameters.down_weight, kNoBias, micro_batch);
  Border border(context, tokens);
  linear_backward_weight(context, up_grad, border.enter(normed, Pass::forward), parameters.up_weight,
                         sums == BiasSums::weight_half ? parameters.up_bias : kNoBias, micro_batch);
}

}  // namespace espalier::app
