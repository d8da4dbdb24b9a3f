#include "model/context.hpp"

namespace espalier::app {

View Border::scratch(const View& x, Region to) {
  const std::int64_t rows = to == Region::inside ? tokens_.inside : tokens_.outside;
  if (rows == x.rows) return {};
  scratch_.open(static_cast<std::size_t>(rows * x.cols) * size_of(x.dtype));
  return scratch_.matrix(rows, x.cols, x.dtype);
}

/// The sum in the working type.
View Border::rounded(const View& sum) {
  if (sum.dtype == context_.working) return sum;
  rounded_.open(static_cast<std::size_t>(sum.elements()) * size_of(context_.working));
  const View result = rounded_.matrix(sum.rows, sum.cols, context_.working);
  context_.kernels.elementwise->add(sum, View{}, result, *context_.stream);
  return result;
}

View Border::enter(const View& x, Pass pass) {
  return enter(x, pass, [] {});
}

View Border::enter(const View& x, Pass pass, FunctionRef<void()> meanwhile) {
  const View to = scratch(x, pass == Pass::forward ? Region::inside : Region::outside);
  const TensorParallel::Border border = context_.tensor->enter(x, to, pass, *context_.stream);
  meanwhile();
  context_.tensor->finish(border.request, *context_.stream);
  return rounded(border.result);
}

View Border::leave(const View& x, Pass pass) {
  const View to = scratch(x, pass == Pass::forward ? Region::outside : Region::inside);
  return rounded(leave_into(context_, x, to, pass));
}

View leave_into(const ModelContext& context, const View& x, const View& scratch, Pass pass) {
  const TensorParallel::Border border = context.tensor->leave(x, scratch, pass, *context.stream);
  context.tensor->finish(border.request, *context.stream);
  return border.result;
}

namespace {

Dropout dropout(const ModelContext& context, const Tokens& tokens, int layer, DropoutSite site, double p) {
  Dropout result;
  if (!tokens.training || p == 0) return result;
  result.p = static_cast<float>(p);
  result.key = make_key(context.seed, RandomUse::dropout,
                        static_cast<std::uint64_t>(layer) * 4 + static_cast<std::uint64_t>(site));
  result.first_sample = tokens.first_sample;
  result.seq = tokens.seq;
  return result;
}

}  // namespace

Dropout hidden_dropout(const ModelContext& context, const Tokens& tokens, int layer, DropoutSite site) {
  Dropout result = dropout(context, tokens, layer, site, context.shape->hidden_dropout);
  result.first_token = tokens.first_row;
  return result;
}

Dropout attention_dropout(const ModelContext& context, const Tokens& tokens, int layer) {
  Dropout result = dropout(context, tokens, layer, DropoutSite::attention, context.shape->attention_dropout);
  result.first_head = context.first_head;
  return result;
}

namespace {

Matmul map_of(const ModelContext& context, const View& src, int weight, const View& bias, const View& dst) {
  Matmul args;
  args.a = src;
  args.b = context.weight(weight);
  args.transpose_b = true;
  args.bias = bias;
  args.dst = dst;
  args.b_version = context.data->weight_version();
  return args;
}

}  // namespace

void linear(const ModelContext& context, const View& src, int weight, const View& bias, const View& dst) {
  context.kernels.matrix->matmul(map_of(context, src, weight, bias, dst), *context.stream);
}

void linear_gelu(const ModelContext& context, const View& src, int weight, const View& bias, const View& dst,
                 const View& activated) {
  Matmul args = map_of(context, src, weight, bias, dst);
  args.gelu = activated;
  context.kernels.matrix->matmul(args, *context.stream);
}

void linear_backward_input(const ModelContext& context, const View& grad_dst, int weight, const View& grad_src,
                           const View& gelu_src) {
  Matmul args;
  args.a = grad_dst;
  args.b = context.weight(weight);
  args.dst = grad_src;
  args.b_version = context.data->weight_version();
  args.gelu_src = gelu_src;
  context.kernels.matrix->matmul(args, *context.stream);
}

bool fuses_gelu(const ModelContext& context, std::int64_t rows, int up, int up_bias, int down) {
  const auto shape = [&](std::int64_t cols) { return View::matrix(nullptr, rows, cols, context.working); };
  const View weight = context.weight(up);
  const View inner = shape(weight.rows);
  Matmul forward = map_of(context, shape(weight.cols), up, context.weight(up_bias), inner);
  forward.gelu = inner;
  Matmul backward;
  backward.a = shape(context.weight(down).rows);
  backward.b = context.weight(down);
  backward.dst = backward.gelu_src = inner;
  return context.kernels.matrix->fuses(forward) && context.kernels.matrix->fuses(backward);
}

void linear_backward_weight(const ModelContext& context, const View& grad_dst, const View& src, int weight, int bias,
                            int micro_batch) {
  const GradientSlot slot = context.data->gradient(weight, micro_batch);
  Matmul args;
  args.a = grad_dst;
  args.transpose_a = true;
  args.b = src;
  args.dst = slot.where;
  args.accumulate = slot.add;
  if (bias != kNoBias) {
    const GradientSlot sum = context.data->gradient(bias, micro_batch);
    args.sum_a = sum.where;
    args.add_sum = sum.add;
    if (!context.kernels.matrix->fuses(args)) {
      context.kernels.matrix->column_sum(grad_dst, sum.where, sum.add, *context.stream);
      args.sum_a = {};
    }
  }
  context.kernels.matrix->matmul(args, *context.stream);
}

void bias_backward(const ModelContext& context, const View& grad_dst, int bias, int micro_batch) {
  const GradientSlot slot = context.data->gradient(bias, micro_batch);
  context.kernels.matrix->column_sum(grad_dst, slot.where, slot.add, *context.stream);
}

void dropped_gradient(const ModelContext& context, const Tokens& tokens, const Dropout& dropout, int bias,
                      const View& grad_dst, const View& out_grad, int micro_batch) {
  const bool gathers = tokens.inside != tokens.outside;
  Temporary memory(*context.arena);
  View dropped = grad_dst;
  if (dropout.active()) {
    if (gathers) memory.open(grad_dst.bytes());
    dropped = gathers ? memory.matrix(grad_dst.rows, grad_dst.cols, grad_dst.dtype) : out_grad;
    context.kernels.elementwise->dropout_backward(grad_dst, dropout, dropped, *context.stream);
  }
  bias_backward(context, dropped, bias, micro_batch);
  const View result = leave_into(context, dropped, gathers ? out_grad : View{}, Pass::backward);
  ESPALIER_ASSERT(result.data == out_grad.data);
}

void norm_backward(const ModelContext& context, const View& grad_dst, const View& src, int weight, int bias,
                   const View& mean, const View& rstd, const View& residual, const View& grad_src, int micro_batch) {
  const GradientSlot weight_slot = context.data->gradient(weight, micro_batch);
  const GradientSlot bias_slot = context.data->gradient(bias, micro_batch);
  ESPALIER_ASSERT(weight_slot.add == bias_slot.add);  // one layer, written by the same calls
  LayerNormGradient args;
  args.grad_dst = grad_dst;
  args.src = src;
  args.weight = context.weight(weight);
  args.mean = mean;
  args.rstd = rstd;
  args.grad_src = grad_src;
  args.residual = residual;
  args.grad_weight = weight_slot.where;
  args.grad_bias = bias_slot.where;
  args.accumulate = weight_slot.add;
  context.kernels.norm->backward(args, *context.stream);
}

void norm_forward(const ModelContext& context, const View& src, int weight, int bias, const View& mean,
                  const View& rstd, const View& dst) {
  LayerNorm args;
  args.src = src;
  args.weight = context.weight(weight);
  args.bias = context.weight(bias);
  args.dst = dst;
  args.mean = mean;
  args.rstd = rstd;
  args.eps = static_cast<float>(context.shape->norm_eps);
  context.kernels.norm->forward(args, *context.stream);
}

void row_parallel_residual(const ModelContext& context, const Tokens& tokens, const View& src, int weight, int bias,
                           const View& residual, const Dropout& dropout, const View& dst) {
  // The product may lie where the sum will be.
  const bool in_place = tokens.inside == tokens.outside && context.partial() == dst.dtype;
  Temporary memory(*context.arena);
  if (!in_place) memory.open(static_cast<std::size_t>(tokens.inside * dst.cols) * size_of(context.partial()));
  const View product = in_place ? dst : memory.matrix(tokens.inside, dst.cols, context.partial());
  linear(context, src, weight, {}, product);
  Border border(context, tokens);
  context.kernels.elementwise->bias_dropout_add(border.leave(product, Pass::forward), context.weight(bias), residual,
                                                dropout, dst, *context.stream);
}

void column_parallel_backward_input(const ModelContext& context, const Tokens& tokens, const View& grad_dst, int weight,
                                    const View& src, int norm_weight, int norm_bias, const View& mean, const View& rstd,
                                    const View& residual, const View& grad_src, int micro_batch,
                                    FunctionRef<void()> meanwhile) {
  Temporary memory(*context.arena, static_cast<std::size_t>(tokens.inside * src.cols) * size_of(context.partial()));
  const View normed_grad = memory.matrix(tokens.inside, src.cols, context.partial());
  linear_backward_input(context, grad_dst, weight, normed_grad);
  Border border(context, tokens);
  norm_backward(context, border.enter(normed_grad, Pass::backward, meanwhile), src, norm_weight, norm_bias, mean, rstd,
                residual, grad_src, micro_batch);
}

}  // namespace espalier::app
