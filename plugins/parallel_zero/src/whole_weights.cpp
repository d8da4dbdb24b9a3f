#include "whole_weights.hpp"

#include <utility>

namespace espalier::parallel_zero {

void WholeWeights::bind(const Setup& setup) {
  ESPALIER_ASSERT(flying_ == 0);
  setup_ = setup;
  state_.assign(setup.layout->groups.size(), State::equal);
  requests_.assign(setup.layout->buffers.size(), {});
  next_ = state_.size();
}

void WholeWeights::acquire(int layer, Stream& stream) {
  if (equal()) return;
  for (const Half half : {Half::input, Half::weight}) {
    const int group = setup_.layout->find(layer, half);
    if (group >= 0) start(static_cast<std::size_t>(group), stream);
  }
  start_next(stream);
  for (const Half half : {Half::input, Half::weight}) {
    const int group = setup_.layout->find(layer, half);
    if (group >= 0) finish(static_cast<std::size_t>(group), stream);
  }
}

void WholeWeights::gather(Stream& stream) {
  for (std::size_t group = 0; group < state_.size(); ++group) {
    start_next(stream);
    finish(group, stream);
  }
}

/// In the order of the list, which is the same on all ranks.
void WholeWeights::start_next(Stream& stream) {
  while (next_ < state_.size() && (state_[next_] != State::stale || flying_ < kFlying)) start(next_++, stream);
}

void WholeWeights::start(std::size_t number, Stream& stream) {
  if (state_[number] != State::stale) return;
  state_[number] = State::flying;
  flying_ += 1;
  Stream& lane = setup_.device->lane(Lane::data);
  setup_.device->order(stream, lane);
  for (const int b : setup_.layout->groups[number].buffers) {
    const Buffer& buffer = setup_.layout->buffers[static_cast<std::size_t>(b)];
    const View whole = View::vector(setup_.memory + static_cast<std::size_t>(buffer.at) * size_of(setup_.working),
                                    buffer.elements, setup_.working);
    Request& request = requests_[static_cast<std::size_t>(b)];
    if (buffer.owner >= 0) {
      request = setup_.group->start_broadcast(whole, buffer.owner, lane);
    } else if (setup_.sharded) {
      const std::int64_t shard = shard_of(buffer, setup_.group->size()), rank = setup_.group->rank();
      request = setup_.group->start_all_gather(whole.flat_range(shard * rank, shard * (rank + 1)), whole, lane);
    }
  }
}

void WholeWeights::finish(std::size_t number, Stream& stream) {
  if (state_[number] != State::flying) return;
  state_[number] = State::equal;
  flying_ -= 1;
  Stream& lane = setup_.device->lane(Lane::data);
  for (const int b : setup_.layout->groups[number].buffers) {
    setup_.group->finish(std::exchange(requests_[static_cast<std::size_t>(b)], {}), lane);
  }
  setup_.device->order(lane, stream);
}

}  // namespace espalier::parallel_zero
