#include "model/block.hpp"

namespace espalier::app {
namespace {

/// Whether the gradient of a row-parallel map's product is another one than that of the residual stream.
bool separate_gradient(const ModelContext& context, const Tokens& tokens) {
  return tokens.inside != tokens.outside || (tokens.training && context.shape->hidden_dropout > 0);
}

}  // namespace

std::size_t BlockInputs::carve(const ModelContext& context, const Tokens& tokens, std::byte* memory) {
  Carve carve(memory);
  const std::int64_t hidden = context.shape->hidden;
  attention_normed = carve.matrix(tokens.outside, hidden, context.working);
  attended = carve.matrix(tokens.inside, context.own_hidden(), context.working);
  mlp_normed = carve.matrix(tokens.outside, hidden, context.working);
  activated = carve.matrix(tokens.inside, context.own_ffn, context.working);
  return carve.bytes();
}

std::size_t BlockSaved::carve(const ModelContext& context, const Tokens& tokens, std::byte* memory) {
  Carve carve(memory);
  attention.mean = carve.vector(tokens.outside, DType::f32);
  attention.rstd = carve.vector(tokens.outside, DType::f32);
  attention.qkv = carve.matrix(tokens.inside, 3 * context.own_hidden(), context.working);
  attention.kept = {};
  if (tokens.training && context.recompute != Recompute::selective) {
    const Attention shape = training_attention(context, tokens, 0, attention.qkv, attention.qkv);
    const std::size_t bytes = context.kernels.attention->saved_bytes(shape);
    attention.kept = carve.vector(static_cast<std::int64_t>(bytes), DType::u8);
  }
  middle = carve.matrix(tokens.outside, context.shape->hidden, context.working);
  mlp.mean = carve.vector(tokens.outside, DType::f32);
  mlp.rstd = carve.vector(tokens.outside, DType::f32);
  mlp.up = carve.matrix(tokens.inside, context.own_ffn, context.working);
  return carve.bytes();
}

std::size_t BlockGradients::carve(const ModelContext& context, const Tokens& tokens, const View& grad_dst,
                                  std::byte* memory) {
  Carve carve(memory);
  const std::int64_t hidden = context.shape->hidden;
  const bool separate = separate_gradient(context, tokens);
  middle = carve.matrix(tokens.outside, hidden, context.working);
  qkv = carve.matrix(tokens.inside, 3 * context.own_hidden(), context.working);
  mlp_up = carve.matrix(tokens.inside, context.own_ffn, context.working);
  attention_out = separate ? carve.matrix(tokens.inside, hidden, context.working) : middle;
  mlp_down = separate ? carve.matrix(tokens.inside, hidden, context.working) : grad_dst;
  return carve.bytes();
}

}  // namespace espalier::app
