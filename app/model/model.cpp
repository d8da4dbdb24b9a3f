#include "model/model.hpp"

#include <algorithm>

#include "model/roles.hpp"

namespace espalier::app {

Model::Model(const ModelContext& context, std::span<const LayerRange> parts, std::span<const LocalParameter> parameters,
             std::span<const Walk> walks)
    : context_(context), parts_(parts), head_layer_(static_cast<int>(context.shape->layers) + 1) {
  RolePositions roles = find_roles(*context.shape, parameters);
  embedding_ = roles.embedding;
  blocks_ = std::move(roles.blocks);
  head_ = roles.head;

  int micro_batches = 0;
  std::int64_t tokens = 0;
  for (const Walk& walk : walks) {
    micro_batches = std::max(micro_batches, walk.micro_batches);
    tokens = std::max(tokens, walk.samples * walk.seq);
  }
  states_.resize(static_cast<std::size_t>(micro_batches) * parts_.size());
  for (int m = 0; m < micro_batches; ++m) {
    for (int chunk = 0; chunk < static_cast<int>(parts_.size()); ++chunk) {
      const auto n = static_cast<std::size_t>(blocks(chunk).size());
      State& s = state(chunk, m);
      s.blocks.resize(n);
      s.stream.resize(n + 1);
      s.gradients.resize(n + 1);
    }
  }
  if (embedding_.position >= 0) {
    positions_.resize(static_cast<std::size_t>(tokens));
    positions_memory_ = context_.device->reserve(positions_.size() * sizeof(std::int32_t), "tables");
  }
}

void Model::begin(const Walk& walk) {
  ESPALIER_ASSERT(context_.arena->empty());
  if (!positions_.empty() && walk.seq != walk_.seq) {
    for (std::size_t t = 0; t < positions_.size(); ++t) {
      positions_[t] = static_cast<std::int32_t>(static_cast<std::int64_t>(t) % walk.seq);
    }
    const auto n = static_cast<std::int64_t>(positions_.size());
    context_.device->copy(View::vector(positions_.data(), n, DType::i32),
                          View::vector(positions_memory_.data(), n, DType::i32), *context_.stream);
  }
  walk_ = walk;
  tokens_.samples = walk.samples;
  tokens_.seq = walk.seq;
  tokens_.inside = context_.tensor->rows(tokens_.count(), Region::inside);
  tokens_.outside = context_.tensor->rows(tokens_.count(), Region::outside);
  tokens_.first_row = context_.tensor->first_row(tokens_.count());
  tokens_.training = walk.mode == Mode::train;
}

LayerRange Model::blocks(int chunk) const {
  return {std::max(part(chunk).first, 1), std::min(part(chunk).end, head_layer_)};
}

View Model::stream_view(const Slot& slot) const {
  return View::matrix(context_.arena->data(slot), tokens_.outside, context_.shape->hidden, context_.working);
}

View Model::open_stream(Slot& slot) {
  slot = context_.arena->open(static_cast<std::size_t>(tokens_.outside * context_.shape->hidden) *
                              size_of(context_.working));
  return stream_view(slot);
}

View Model::ids(const State& state) const {
  return View::vector(context_.arena->data(state.batch), tokens_.count(), DType::i32);
}

View Model::targets(const State& state) const {
  return View::vector(context_.arena->data(state.batch) + aligned(ids(state).bytes()), tokens_.count(), DType::i32);
}

View Model::positions() const {
  return positions_.empty() ? View{} : View::vector(positions_memory_.data(), tokens_.count(), DType::i32);
}

void Model::load_batch(State& state, int chunk, int micro_batch, BatchSource& batches) {
  const MicroBatch batch = batches.micro_batch(micro_batch);
  state.first_sample = batch.first_sample;
  if (!first(chunk) && !last(chunk)) return;
  state.batch = context_.arena->open(2 * aligned(static_cast<std::size_t>(tokens_.count()) * sizeof(std::int32_t)));
  const auto load = [&](const std::int32_t* from, const View& to) {
    context_.device->copy(View::vector(const_cast<std::int32_t*>(from), tokens_.count(), DType::i32), to,
                          *context_.stream);
  };
  if (first(chunk)) load(batch.ids, ids(state));
  if (last(chunk)) load(batch.targets, targets(state));
}

View Model::open_input(int chunk, int micro_batch) { return open_stream(state(chunk, micro_batch).stream.front()); }

View Model::open_gradient(int chunk, int micro_batch) {
  return open_stream(state(chunk, micro_batch).gradients.back());
}

View Model::output(int chunk, int micro_batch) { return stream_view(state(chunk, micro_batch).stream.back()); }

void Model::close_output(int chunk, int micro_batch) { context_.arena->close(state(chunk, micro_batch).stream.back()); }

View Model::input_gradient(int chunk, int micro_batch) {
  return stream_view(state(chunk, micro_batch).gradients.front());
}

void Model::close_input_gradient(int chunk, int micro_batch) {
  context_.arena->close(state(chunk, micro_batch).gradients.front());
}

void Model::forward(int chunk, int micro_batch, BatchSource& batches, double* sums) {
  State& s = state(chunk, micro_batch);
  load_batch(s, chunk, micro_batch, batches);
  tokens_.first_sample = s.first_sample;
  if (first(chunk)) embedding_part_forward(s);
  const LayerRange range = blocks(chunk);
  for (int layer = range.first; layer < range.end; ++layer) {
    const auto position = static_cast<std::size_t>(layer - range.first);
    context_.data->acquire(layer, Need::all, *context_.stream);
    block_forward(s, layer, position, true);
    context_.data->release(layer, Need::all);
    if (!tokens_.training) context_.arena->close(s.stream[position]);
  }
  if (tokens_.training) return;
  if (last(chunk)) {
    acquire_head();
    head_loss(context_, tokens_, head_, stream_view(s.stream.back()), head_pass(s, micro_batch, 1.0, sums));
    release_head();
    context_.arena->close(s.stream.back());
  }
  context_.arena->close(s.batch);
}

void Model::backward(int chunk, int micro_batch, double loss_scale, double* sums) {
  State& s = state(chunk, micro_batch);
  tokens_.first_sample = s.first_sample;
  if (last(chunk)) head_backward(s, micro_batch, loss_scale, sums);
  const LayerRange range = blocks(chunk);
  for (int layer = range.end - 1; layer >= range.first; --layer) {
    const auto position = static_cast<std::size_t>(layer - range.first);
    block_backward_input(s, layer, position, micro_batch, true);
    finish_block_backward(s, layer, position, micro_batch);
  }
  if (first(chunk)) embedding_part_backward(s, micro_batch);
  context_.arena->close(s.batch);
}

void Model::backward_input(int chunk, int micro_batch, double loss_scale, double* sums) {
  State& s = state(chunk, micro_batch);
  tokens_.first_sample = s.first_sample;
  if (last(chunk)) head_backward(s, micro_batch, loss_scale, sums);
  const LayerRange range = blocks(chunk);
  for (int layer = range.end - 1; layer >= range.first; --layer) {
    block_backward_input(s, layer, static_cast<std::size_t>(layer - range.first), micro_batch, false);
  }
  if (first(chunk)) embedding_part_backward(s, micro_batch);
  context_.arena->close(s.batch);
}

void Model::backward_weight(int chunk, int micro_batch) {
  State& s = state(chunk, micro_batch);
  tokens_.first_sample = s.first_sample;
  const LayerRange range = blocks(chunk);
  for (int layer = range.end - 1; layer >= range.first; --layer) {
    const auto position = static_cast<std::size_t>(layer - range.first);
    block_backward_weight(s, layer, position, micro_batch);
    finish_block_backward(s, layer, position, micro_batch);
  }
}

}  // namespace espalier::app
