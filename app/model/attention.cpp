#include "model/attention.hpp"

#include <cmath>

namespace espalier::app {
namespace {

/// One of q, k, v (part 0, 1, 2) in rows of interleaved QKV.
AttentionOperand interleaved(const ModelContext& context, const Tokens& tokens, const View& qkv, int part) {
  const std::int64_t head_dim = context.shape->head_dim();
  return {qkv.at(0, part * head_dim), tokens.seq * qkv.row_stride, qkv.row_stride, 3 * head_dim};
}

AttentionOperand by_heads(const ModelContext& context, const Tokens& tokens, const View& x) {
  return {x.data, tokens.seq * x.row_stride, x.row_stride, context.shape->head_dim()};
}

}  // namespace

Attention training_attention(const ModelContext& context, const Tokens& tokens, int layer, const View& qkv,
                             const View& out) {
  Attention args;
  args.q = interleaved(context, tokens, qkv, 0);
  args.k = interleaved(context, tokens, qkv, 1);
  args.v = interleaved(context, tokens, qkv, 2);
  args.out = by_heads(context, tokens, out);
  args.dtype = context.working;
  args.batch = tokens.samples;
  args.heads = context.own_heads;
  args.head_dim = context.shape->head_dim();
  args.queries = tokens.seq;
  args.keys = tokens.seq;
  args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(context.shape->head_dim())));
  args.slopes = context.slopes;
  args.dropout = attention_dropout(context, tokens, layer);
  return args;
}

void attention_projection(const ModelContext& context, const Tokens& tokens, const AttentionParameters& parameters,
                          const View& src, const View& normed, const AttentionSaved& saved) {
  norm_forward(context, src, parameters.norm_weight, parameters.norm_bias, saved.mean, saved.rstd, normed);
  Border border(context, tokens);
  linear(context, border.enter(normed, Pass::forward), parameters.qkv_weight, context.weight(parameters.qkv_bias),
         saved.qkv);
}

void attention_output(const ModelContext& context, const Tokens& tokens, int layer,
                      const AttentionParameters& parameters, const View& src, const View& attended, const View& dst) {
  row_parallel_residual(context, tokens, attended, parameters.out_weight, parameters.out_bias, src,
                        hidden_dropout(context, tokens, layer, DropoutSite::attention_out), dst);
}

void attention_forward(const ModelContext& context, const Tokens& tokens, int layer,
                       const AttentionParameters& parameters, const View& src, const View& normed, const View& attended,
                       const AttentionSaved& saved, const View& dst) {
  attention_projection(context, tokens, parameters, src, normed, saved);
  Attention attention = training_attention(context, tokens, layer, saved.qkv, attended);
  attention.saved = saved.kept;
  context.kernels.attention->forward(attention, *context.stream);
  attention_output(context, tokens, layer, parameters, src, attended, dst);
}

void attention_backward_input(const ModelContext& context, const Tokens& tokens, int layer,
                              const AttentionParameters& parameters, const View& src, const View& attended,
                              const AttentionSaved& saved, const View& grad_dst, const View& out_grad,
                              const View& qkv_grad, const View& grad_src, int micro_batch, BiasSums sums,
                              FunctionRef<void()> meanwhile) {
  Stream& stream = *context.stream;
  const std::size_t element = size_of(context.working);
  dropped_gradient(context, tokens, hidden_dropout(context, tokens, layer, DropoutSite::attention_out),
                   parameters.out_bias, grad_dst, out_grad, micro_batch);
  {
    Temporary memory(*context.arena, static_cast<std::size_t>(attended.elements()) * element);
    const View attended_grad = memory.matrix(attended.rows, attended.cols, context.working);
    linear_backward_input(context, out_grad, parameters.out_weight, attended_grad);

    AttentionGradient gradient;
    gradient.forward = training_attention(context, tokens, layer, saved.qkv, attended);
    gradient.forward.saved = saved.kept;
    Temporary kept(*context.arena);
    if (saved.kept.empty()) {  // selective recomputation
      const std::size_t bytes = context.kernels.attention->saved_bytes(gradient.forward);
      kept.open(bytes);
      gradient.forward.saved = kept.matrix(1, static_cast<std::int64_t>(bytes), DType::u8);
      context.kernels.attention->forward(gradient.forward, stream);
    }
    gradient.grad_out = by_heads(context, tokens, attended_grad);
    gradient.grad_q = interleaved(context, tokens, qkv_grad, 0);
    gradient.grad_k = interleaved(context, tokens, qkv_grad, 1);
    gradient.grad_v = interleaved(context, tokens, qkv_grad, 2);
    context.kernels.attention->backward(gradient, stream);
  }
  if (sums == BiasSums::input_half) bias_backward(context, qkv_grad, parameters.qkv_bias, micro_batch);

  column_parallel_backward_input(context, tokens, qkv_grad, parameters.qkv_weight, src, parameters.norm_weight,
                                 parameters.norm_bias, saved.mean, saved.rstd, grad_dst, grad_src, micro_batch,
                                 meanwhile);
}

void attention_backward_weight(const ModelContext& context, const Tokens& tokens, const AttentionParameters& parameters,
                               const View& normed, const View& attended, const View& out_grad, const View& qkv_grad,
                               int micro_batch, BiasSums sums) {
  linear_backward_weight(context, out_grad, attended, parameters.out_weight, kNoBias, micro_batch);
  Border border(context, tokens);
  linear_backward_weight(context, qkv_grad, border.enter(normed, Pass::forward), parameters.qkv_weight,
                         sums == BiasSums::weight_half ? parameters.qkv_bias : kNoBias, micro_batch);
}

}  // namespace espalier::app
