#include "model/embedding.hpp"

namespace espalier::app {
namespace {

/// Adds the rows of `ids` to a table's gradient. The kernel only adds, so a place to be overwritten is zeroed first.
void scatter(const ModelContext& context, const View& ids, const View& grad, std::int64_t first_id, int parameter,
             int micro_batch) {
  const GradientSlot slot = context.data->gradient(parameter, micro_batch);
  if (!slot.add) context.device->fill_zero(slot.where, *context.stream);
  context.kernels.elementwise->embedding_backward(ids, grad, first_id, slot.where, *context.stream);
}

View own_rows(const Tokens& tokens, const View& per_token) {
  return per_token.flat_range(tokens.first_row, tokens.first_row + tokens.outside);
}

}  // namespace

std::size_t EmbeddingSaved::carve(const ModelContext& context, const Tokens& tokens, std::byte* memory) {
  Carve carve(memory);
  if (!context.shape->embedding_norm) return 0;
  sum = carve.matrix(tokens.outside, context.shape->hidden, context.working);
  mean = carve.vector(tokens.outside, DType::f32);
  rstd = carve.vector(tokens.outside, DType::f32);
  return carve.bytes();
}

void embedding_forward(const ModelContext& context, const Tokens& tokens, const EmbeddingParameters& parameters,
                       const View& ids, const View& positions, const EmbeddingSaved& saved, const View& dst) {
  Stream& stream = *context.stream;
  ElementwiseKernels& elementwise = *context.kernels.elementwise;
  const bool norm = parameters.norm_weight >= 0;
  const View sum = norm ? saved.sum : dst;

  // Each rank looks up the ids of its part of the vocabulary: leaving the sharded region adds the parts.
  const bool in_place = tokens.inside == tokens.outside;
  Temporary memory(*context.arena);
  if (!in_place) memory.open(static_cast<std::size_t>(tokens.inside * dst.cols) * size_of(dst.dtype));
  const View partial = in_place ? sum : memory.matrix(tokens.inside, dst.cols, dst.dtype);
  elementwise.embedding(ids, context.weight(parameters.word), parameters.first_id, partial, stream);
  const View left = leave_into(context, partial, in_place ? View{} : sum, Pass::forward);
  ESPALIER_ASSERT(left.data == sum.data);

  if (parameters.position >= 0) {
    Temporary rows_memory(*context.arena, dst.bytes());
    const View rows = rows_memory.matrix(dst.rows, dst.cols, dst.dtype);
    elementwise.embedding(own_rows(tokens, positions), context.weight(parameters.position), 0, rows, stream);
    elementwise.add(sum, rows, sum, stream);
  }
  if (norm) norm_forward(context, sum, parameters.norm_weight, parameters.norm_bias, saved.mean, saved.rstd, dst);
  const Dropout dropout = hidden_dropout(context, tokens, 0, DropoutSite::embedding);
  if (dropout.active())
    elementwise.dropout_backward(dst, dropout, dst, stream);  // forward and backward are the same product
}

void embedding_backward(const ModelContext& context, const Tokens& tokens, const EmbeddingParameters& parameters,
                        const View& ids, const View& positions, const EmbeddingSaved& saved, const View& grad,
                        int micro_batch) {
  const Dropout dropout = hidden_dropout(context, tokens, 0, DropoutSite::embedding);
  if (dropout.active()) context.kernels.elementwise->dropout_backward(grad, dropout, grad, *context.stream);
  if (parameters.norm_weight >= 0) {
    norm_backward(context, grad, saved.sum, parameters.norm_weight, parameters.norm_bias, saved.mean, saved.rstd, {},
                  grad, micro_batch);
  }
  if (parameters.position >= 0)
    scatter(context, own_rows(tokens, positions), grad, 0, parameters.position, micro_batch);
  Border border(context, tokens);
  scatter(context, ids, border.leave(grad, Pass::backward), parameters.first_id, parameters.word, micro_batch);
}

}  // namespace espalier::app
