// How the model's layers use the arena: slots of blocks, embedding and head.
#include "model/model.hpp"

namespace espalier::app {

void Model::block_forward(State& state, int layer, std::size_t position, bool with_output) {
  Arena& arena = *context_.arena;
  const BlockParameters& parameters = blocks_[static_cast<std::size_t>(layer)];
  BlockSlots& slots = state.blocks[position];
  BlockInputs inputs;
  BlockSaved saved;
  slots.inputs = arena.open(inputs.carve(context_, tokens_, nullptr));
  slots.saved = arena.open(saved.carve(context_, tokens_, nullptr));
  inputs.carve(context_, tokens_, arena.data(slots.inputs));
  saved.carve(context_, tokens_, arena.data(slots.saved));
  const View src = stream_view(state.stream[position]);
  const View dst = with_output ? open_stream(state.stream[position + 1]) : View{};
  attention_forward(context_, tokens_, layer, parameters.attention, src, inputs.attention_normed, inputs.attended,
                    saved.attention, saved.middle);
  mlp_forward(context_, tokens_, layer, parameters.mlp, saved.middle, inputs.mlp_normed, inputs.activated, saved.mlp,
              dst);
  const bool keep = tokens_.training && (context_.recompute != Recompute::full || !with_output);
  if (keep) return;
  arena.close(slots.inputs);
  arena.close(slots.saved);
}

void Model::block_backward_input(State& state, int layer, std::size_t position, int micro_batch, bool both) {
  Arena& arena = *context_.arena;
  const BlockParameters& parameters = blocks_[static_cast<std::size_t>(layer)];
  BlockSlots& slots = state.blocks[position];
  context_.data->acquire(layer, Need::all, *context_.stream);
  if (context_.recompute == Recompute::full) block_forward(state, layer, position, false);
  BlockInputs inputs;
  BlockSaved saved;
  BlockGradients gradients;
  inputs.carve(context_, tokens_, arena.data(slots.inputs));
  saved.carve(context_, tokens_, arena.data(slots.saved));
  const View grad_dst = stream_view(state.gradients[position + 1]);
  slots.gradients = arena.open(gradients.carve(context_, tokens_, grad_dst, nullptr));
  gradients.carve(context_, tokens_, grad_dst, arena.data(slots.gradients));
  const View grad_src = open_stream(state.gradients[position]);

  const BiasSums sums = both ? BiasSums::weight_half : BiasSums::input_half;
  const auto mlp_weights = [&] {
    if (!both) return;
    mlp_backward_weight(context_, tokens_, parameters.mlp, inputs.mlp_normed, inputs.activated, gradients.mlp_down,
                        gradients.mlp_up, micro_batch, sums);
  };
  const auto attention_weights = [&] {
    if (!both) return;
    attention_backward_weight(context_, tokens_, parameters.attention, inputs.attention_normed, inputs.attended,
                              gradients.attention_out, gradients.qkv, micro_batch, sums);
  };
  mlp_backward_input(context_, tokens_, layer, parameters.mlp, saved.middle, saved.mlp, grad_dst, gradients.mlp_down,
                     gradients.mlp_up, gradients.middle, micro_batch, sums, mlp_weights);
  attention_backward_input(context_, tokens_, layer, parameters.attention, stream_view(state.stream[position]),
                           inputs.attended, saved.attention, gradients.middle, gradients.attention_out, gradients.qkv,
                           grad_src, micro_batch, sums, attention_weights);
  context_.data->release(layer, Need::all);
  context_.data->written(layer, micro_batch, Half::input, *context_.stream);
  arena.close(slots.saved);
  arena.close(state.stream[position]);
}

void Model::block_backward_weight(State& state, int layer, std::size_t position, int micro_batch) {
  Arena& arena = *context_.arena;
  const BlockParameters& parameters = blocks_[static_cast<std::size_t>(layer)];
  BlockSlots& slots = state.blocks[position];
  BlockInputs inputs;
  BlockGradients gradients;
  inputs.carve(context_, tokens_, arena.data(slots.inputs));
  gradients.carve(context_, tokens_, stream_view(state.gradients[position + 1]), arena.data(slots.gradients));
  mlp_backward_weight(context_, tokens_, parameters.mlp, inputs.mlp_normed, inputs.activated, gradients.mlp_down,
                      gradients.mlp_up, micro_batch, BiasSums::input_half);
  attention_backward_weight(context_, tokens_, parameters.attention, inputs.attention_normed, inputs.attended,
                            gradients.attention_out, gradients.qkv, micro_batch, BiasSums::input_half);
}

void Model::finish_block_backward(State& state, int layer, std::size_t position, int micro_batch) {
  Arena& arena = *context_.arena;
  BlockSlots& slots = state.blocks[position];
  context_.data->written(layer, micro_batch, Half::weight, *context_.stream);
  arena.close(slots.inputs);
  arena.close(slots.gradients);
  arena.close(state.gradients[position + 1]);
}

HeadPass Model::head_pass(const State& state, int micro_batch, double loss_scale, double* sums) const {
  HeadPass pass;
  pass.micro_batch = micro_batch;
  pass.targets = targets(state);
  pass.scale = loss_scale / static_cast<double>(tokens_.count());
  pass.sums = sums;
  pass.sink = sink_;
  return pass;
}

void Model::acquire_head() {
  context_.data->acquire(head_layer_, Need::all, *context_.stream);
  if (head_.weight_layer != head_layer_) context_.data->acquire(head_.weight_layer, Need::tables, *context_.stream);
}

void Model::release_head() {
  if (head_.weight_layer != head_layer_) context_.data->release(head_.weight_layer, Need::tables);
  context_.data->release(head_layer_, Need::all);
}

void Model::head_backward(State& state, int micro_batch, double loss_scale, double* sums) {
  acquire_head();
  const View grad = open_stream(state.gradients.back());
  head_loss_and_backward(context_, tokens_, head_, stream_view(state.stream.back()), grad,
                         head_pass(state, micro_batch, loss_scale, sums));
  release_head();
  for (const Half half : {Half::input, Half::weight}) {
    context_.data->written(head_layer_, micro_batch, half, *context_.stream);
  }
  context_.arena->close(state.stream.back());
}

void Model::embedding_part_forward(State& state) {
  Arena& arena = *context_.arena;
  EmbeddingSaved saved;
  state.embedding = arena.open(saved.carve(context_, tokens_, nullptr));
  saved.carve(context_, tokens_, arena.data(state.embedding));
  const View dst = open_stream(state.stream.front());
  context_.data->acquire(0, Need::all, *context_.stream);
  embedding_forward(context_, tokens_, embedding_, ids(state), positions(), saved, dst);
  context_.data->release(0, Need::all);
  if (!tokens_.training) arena.close(state.embedding);
}

void Model::embedding_part_backward(State& state, int micro_batch) {
  Arena& arena = *context_.arena;
  EmbeddingSaved saved;
  saved.carve(context_, tokens_, arena.data(state.embedding));
  context_.data->acquire(0, Need::all_but_tables, *context_.stream);
  embedding_backward(context_, tokens_, embedding_, ids(state), positions(), saved,
                     stream_view(state.gradients.front()), micro_batch);
  context_.data->release(0, Need::all_but_tables);
  for (const Half half : {Half::input, Half::weight}) {
    context_.data->written(0, micro_batch, half, *context_.stream);
  }
  arena.close(state.embedding);
  arena.close(state.gradients.front());
}

}  // namespace espalier::app
