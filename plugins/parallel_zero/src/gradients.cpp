// Where gradients are written, and the sums of a step in their order: data group, then what is partial over the tensor
// group, then the tied pair.
#include <algorithm>

#include "window.hpp"
#include "zero.hpp"

namespace espalier::parallel_zero {

GradientSlot Zero::gradient(int parameter, int) {
  const auto p = static_cast<std::size_t>(parameter);
  const bool in_parts = written_in_parts(parameters_[p].parameter);
  if (!shards_gradients()) {
    const bool add = written_[p] || in_parts;
    written_[p] = true;
    return {gradients_[p], add};
  }
  const Item& place = layout_.places[p];
  const View buffer = open_gradient(layout_.buffers[static_cast<std::size_t>(place.parameter)]);
  const View flat = buffer.flat_range(place.begin, place.begin + place.elements);
  const Shape& shape = parameters_[p].placement.local;
  const View where = View::matrix(flat.data, shape.rows(), shape.cols(), DType::f32);
  // As in stages 0 and 1, where such memory is zero at the start of a step: the same additions, the same bits.
  if (in_parts && !written_[p]) backend_->device().fill_zero(where, backend_->device().lane(Lane::compute));
  const bool add = written_[p] || in_parts;
  written_[p] = true;
  return {where, add};
}

/// Memory of a buffer of the layer that is being written; takes a slot for its group where that has none yet.
View Zero::open_gradient(const Buffer& buffer) {
  int& slot = open_slot_[static_cast<std::size_t>(buffer.group)];
  const BufferGroup& group = layout_.groups[static_cast<std::size_t>(buffer.group)];
  if (slot < 0) {
    const auto pool = static_cast<std::size_t>(group.pool);
    slot = first_slot(sizes_.open, group.pool) + next_slot_[pool];
    next_slot_[pool] = (next_slot_[pool] + 1) % sizes_.open.count[pool];
    for (std::size_t g = 0; g < open_slot_.size(); ++g) {
      ESPALIER_ASSERT(open_slot_[g] != slot || static_cast<int>(g) == buffer.group);  // one layer at a time
    }
    reducer_.finish_until(slot_sums_[static_cast<std::size_t>(slot)]);
    Device& device = backend_->device();
    device.order(device.lane(Lane::data), device.lane(Lane::compute));
  }
  const std::int64_t at = slot_begin(sizes_.open, slot) + buffer.in_group;
  return View::vector(open_memory_.data() + static_cast<std::size_t>(at) * sizeof(float), buffer.elements, DType::f32);
}

void Zero::written(int layer, int micro_batch, Half half, Stream& stream) {
  const int group = layout_.find(layer, half);
  if (group < 0 || data_.size() == 1) return;
  if (shards_gradients()) {
    reduce_group(group, stream);
  } else if (options_.overlap && micro_batch + 1 == micro_batches_) {
    start_whole(group, stream);
  }
  if (!reducer_.idle()) data_.done({});  // moves what is on its way
}

/// One micro-batch of a layer's half, onto the shard's sums.
void Zero::reduce_group(int number, Stream& stream) {
  Device& device = backend_->device();
  const BufferGroup& group = layout_.groups[static_cast<std::size_t>(number)];
  for (const int b : group.buffers) {
    for (const Item& item : layout_.buffers[static_cast<std::size_t>(b)].items) {
      const auto p = static_cast<std::size_t>(item.parameter);
      // Nobody wrote it for this micro-batch, and what is there is another layer's.
      if (!written_[p]) {
        const View buffer = open_gradient(layout_.buffers[static_cast<std::size_t>(b)]);
        device.fill_zero(buffer.flat_range(item.begin, item.begin + item.elements), stream);
      }
      written_[p] = false;
    }
  }
  device.order(stream, device.lane(Lane::data));
  for (const int b : group.buffers) {
    const auto index = static_cast<std::size_t>(b);
    slot_sums_[static_cast<std::size_t>(open_slot_[static_cast<std::size_t>(number)])] =
        reducer_.start(b, open_gradient(layout_.buffers[index]), summed_[index]);
    summed_[index] = true;
  }
  open_slot_[static_cast<std::size_t>(number)] = -1;
  if (options_.overlap) return;
  reducer_.finish_all();
  device.order(device.lane(Lane::data), stream);
}

/// The last micro-batch of a step is in the accumulators of this half of a layer.
void Zero::start_whole(int number, Stream& stream) {
  const BufferGroup& group = layout_.groups[static_cast<std::size_t>(number)];
  Device& device = backend_->device();
  for (const int b : group.buffers) {
    const Buffer& buffer = layout_.buffers[static_cast<std::size_t>(b)];
    for (const Item& item : buffer.items) {
      const auto p = static_cast<std::size_t>(item.parameter);
      // Nobody wrote it in this step, and what is there is of the last one.
      if (!written_[p] && !written_in_parts(parameters_[p].parameter)) device.fill_zero(gradients_[p], stream);
      written_[p] = true;
    }
    summed_[static_cast<std::size_t>(b)] = true;
  }
  device.order(stream, device.lane(Lane::data));
  if (data_.size() == 1) return;
  for (const int b : group.buffers) {
    reducer_.start(b, whole_gradient(layout_.buffers[static_cast<std::size_t>(b)]), false);
  }
}

void Zero::reduce(Do what, Stream& stream) {
  Device& device = backend_->device();
  if (what == Do::reduce_gradients) {
    finish_gradients(stream);
    Stream& lane = device.lane(Lane::data);
    reduce_partial(lane);
    device.order(lane, stream);
  } else if (what == Do::reduce_tied_gradients && ties()) {
    Stream& lane = device.lane(Lane::pipeline);
    device.order(stream, lane);
    reduce_tied(lane);
    device.order(lane, stream);
  }
}

/// Leaves the sum over data group and micro-batches; work that follows goes on the data lane.
void Zero::finish_gradients(Stream& stream) {
  Device& device = backend_->device();
  Stream& lane = device.lane(Lane::data);
  if (shards_gradients()) {
    for (std::size_t b = 0; b < layout_.buffers.size(); ++b) {
      if (!summed_[b]) device.fill_zero(reducer_.shard(layout_.buffers[b]), stream);
      summed_[b] = true;
    }
    device.order(stream, lane);
    reducer_.finish_all();
    return;
  }
  for (std::size_t g = 0; g < layout_.groups.size(); ++g) {
    const bool started = summed_[static_cast<std::size_t>(layout_.groups[g].buffers.front())];
    if (!started) start_whole(static_cast<int>(g), stream);
  }
  device.order(stream, lane);
  reducer_.finish_all();
}

View Zero::whole_gradient(const Buffer& buffer) const {
  return View::vector(gradient_memory_.data() + static_cast<std::size_t>(buffer.at) * sizeof(float), buffer.elements,
                      DType::f32);
}

/// What the reduction left on this rank: its shard, or everything.
View Zero::reduced_gradient(const Buffer& buffer) const {
  if (shards_gradients()) return reducer_.shard(buffer);
  const View whole = whole_gradient(buffer);
  if (!shards_state() || buffer.owner >= 0) return whole;
  const std::int64_t shard = shard_of(buffer, data_.size());
  return whole.flat_range(shard * data_.rank(), shard * (data_.rank() + 1));
}

/// Norms and row-parallel biases under sequence parallelism: each tensor rank has seen only its tokens.
void Zero::reduce_partial(Stream& lane) {
  if (tensor_.size() == 1) return;
  Window window(tensor_, lane);
  for (const Buffer& buffer : layout_.buffers) {
    if (buffer.kind != Class::partial) continue;
    window.add(tensor_.start_all_reduce(reduced_gradient(buffer), Reduce::sum_rank_order, lane));
  }
  window.finish_all();
}

/// First and last stage swap their sums and add them: with two numbers either order gives the same bits.
void Zero::reduce_tied(Stream& lane) {
  const int other = pipeline_.rank() == 0 ? pipeline_.size() - 1 : 0;
  for (const Buffer& buffer : layout_.buffers) {
    if (buffer.kind != Class::tied) continue;
    const View range = reduced_gradient(buffer);
    const auto bucket = static_cast<std::int64_t>(wire_memory_.bytes() / sizeof(float));
    for (std::int64_t begin = 0; begin < range.elements(); begin += bucket) {
      const View mine = range.flat_range(begin, std::min(begin + bucket, range.elements()));
      const View theirs = View::vector(wire_memory_.data(), mine.elements(), DType::f32);
      // One of the two sends first: a library may do the operations of a group one after another.
      for (const bool sends : {pipeline_.rank() == 0, pipeline_.rank() != 0}) {
        const Request request =
            sends ? pipeline_.start_send(mine, other, 0, lane) : pipeline_.start_receive(theirs, other, 0, lane);
        pipeline_.finish(request, lane);
      }
      backend_->kernels().elementwise->add(mine, theirs, mine, lane);
    }
  }
}

}  // namespace espalier::parallel_zero
