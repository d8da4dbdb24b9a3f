#include "model/head.hpp"

#include <algorithm>

namespace espalier::app {
namespace {

/// Vectors of the cross entropy, one chunk of rows.
struct LossVectors {
  View row_max;  // [rows] f32
  View pair;     // [2 · rows]: sum_exp, then target_logit, so that one reduction carries both
  View sum_exp, target_logit;
  View loss;  // [rows] f32
  std::size_t carve(std::int64_t rows, std::byte* memory) {
    Carve carve(memory);
    row_max = carve.vector(rows, DType::f32);
    pair = carve.vector(2 * rows, DType::f32);
    sum_exp = pair.flat_range(0, rows);
    target_logit = pair.flat_range(rows, 2 * rows);
    loss = carve.vector(rows, DType::f32);
    return carve.bytes();
  }
};

/// One chunk: logits, loss, and unless grad is empty the gradient of the logits.
void chunk_loss(const ModelContext& context, const HeadParameters& parameters, const View& normed, const View& logits,
                const View& targets, std::int64_t first_token, const LossVectors& vectors, const View& grad,
                const HeadPass& pass) {
  Stream& stream = *context.stream;
  LossKernels& kernels = *context.kernels.loss;
  linear(context, normed, parameters.weight, {}, logits);
  if (pass.sink) pass.sink->logits(pass.micro_batch, first_token, parameters.first_id, logits);
  kernels.row_max(logits, parameters.valid, vectors.row_max, stream);
  context.tensor->finish(context.tensor->reduce(vectors.row_max, Reduce::max, stream), stream);
  kernels.exp_sum(logits, parameters.valid, vectors.row_max, targets, parameters.first_id, vectors.sum_exp,
                  vectors.target_logit, stream);
  context.tensor->finish(context.tensor->reduce(vectors.pair, Reduce::sum_rank_order, stream), stream);
  kernels.gradient(logits, parameters.valid, vectors.row_max, vectors.sum_exp, vectors.target_logit, targets,
                   parameters.first_id, static_cast<float>(pass.scale), vectors.loss, grad, stream);
  if (pass.sink) pass.sink->losses(pass.micro_batch, first_token, vectors.loss);
  // Every rank of the tensor group has the same loss: one of them counts it.
  if (context.tensor->rank() == 0) {
    kernels.accumulate(vectors.loss, targets, View::vector(pass.sums, 2, DType::f64), stream);
  }
}

/// Final norm and all chunks; grad_src empty: loss alone.
void run(const ModelContext& context, const Tokens& tokens, const HeadParameters& parameters, const View& src,
         const View& grad_src, const HeadPass& pass) {
  const bool backward = !grad_src.empty();
  Arena& arena = *context.arena;
  const std::int64_t hidden = context.shape->hidden;
  const std::int64_t columns = context.weight(parameters.weight).rows;
  const std::int64_t chunk = std::min(head_chunk_rows(columns, context.logits_bytes), tokens.inside);
  const std::size_t element = size_of(context.working);

  Temporary stats_memory(arena, 2 * aligned(static_cast<std::size_t>(tokens.outside) * sizeof(float)));
  Carve stats(stats_memory.data());
  const View mean = stats.vector(tokens.outside, DType::f32);
  const View rstd = stats.vector(tokens.outside, DType::f32);
  Temporary normed_memory(arena, static_cast<std::size_t>(tokens.outside * hidden) * element);
  const View own_normed = normed_memory.matrix(tokens.outside, hidden, context.working);
  norm_forward(context, src, parameters.norm_weight, parameters.norm_bias, mean, rstd, own_normed);
  Border border(context, tokens);
  const View normed = border.enter(own_normed, Pass::forward);

  Temporary normed_grad_memory(arena);
  if (backward) normed_grad_memory.open(static_cast<std::size_t>(tokens.inside * hidden) * size_of(context.partial()));
  {
    Temporary logits_memory(arena, static_cast<std::size_t>(chunk * columns) * sizeof(float));
    // In FP32 the gradient takes the place of the logits; the matrix kernels want it in the working type.
    const bool in_place = context.working == DType::f32;
    Temporary grad_memory(arena);
    if (backward && !in_place) grad_memory.open(static_cast<std::size_t>(chunk * columns) * element);
    LossVectors vectors;
    Temporary vectors_memory(arena, vectors.carve(chunk, nullptr));
    for (std::int64_t begin = 0; begin < tokens.inside; begin += chunk) {
      const std::int64_t rows = std::min(chunk, tokens.inside - begin);
      const View logits = logits_memory.matrix(rows, columns, DType::f32);
      const View grad = !backward ? View{} : in_place ? logits : grad_memory.matrix(rows, columns, context.working);
      vectors.carve(rows, vectors_memory.data());
      const View part = normed.row_range(begin, begin + rows);
      chunk_loss(context, parameters, part, logits, pass.targets.flat_range(begin, begin + rows), begin, vectors, grad,
                 pass);
      if (!backward) continue;
      const View part_grad =
          normed_grad_memory.matrix(tokens.inside, hidden, context.partial()).row_range(begin, begin + rows);
      linear_backward_input(context, grad, parameters.weight, part_grad);
      linear_backward_weight(context, grad, part, parameters.weight, kNoBias, pass.micro_batch);
    }
  }
  if (!backward) return;
  Border back(context, tokens);
  const View normed_grad = normed_grad_memory.matrix(tokens.inside, hidden, context.partial());
  norm_backward(context, back.enter(normed_grad, Pass::backward), src, parameters.norm_weight, parameters.norm_bias,
                mean, rstd, {}, grad_src, pass.micro_batch);
}

}  // namespace

std::int64_t head_chunk_rows(std::int64_t own_columns, std::int64_t logits_bytes) {
  constexpr std::int64_t kTile = 128;  // whole ones, for a GEMM to run well
  return std::max<std::int64_t>(1, logits_bytes / 4 / std::max<std::int64_t>(own_columns, 1) / kTile) * kTile;
}

void head_loss(const ModelContext& context, const Tokens& tokens, const HeadParameters& parameters, const View& src,
               const HeadPass& pass) {
  run(context, tokens, parameters, src, {}, pass);
}

void head_loss_and_backward(const ModelContext& context, const Tokens& tokens, const HeadParameters& parameters,
                            const View& src, const View& grad_src, const HeadPass& pass) {
  run(context, tokens, parameters, src, grad_src, pass);
}

}  // namespace espalier::app
