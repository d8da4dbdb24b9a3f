#include "reducer.hpp"

#include <algorithm>

namespace espalier::parallel_zero {

void Reducer::bind(const Setup& setup) {
  ESPALIER_ASSERT(idle());
  setup_ = setup;
}

bool Reducer::everywhere(const Buffer& buffer) const {
  return setup_.sums == Sums::everywhere || (setup_.sums == Sums::own_range && buffer.owner >= 0);
}

View Reducer::shard(const Buffer& buffer) const {
  const int ranks = setup_.group->size();
  return View::vector(setup_.shards + static_cast<std::size_t>(buffer.at / ranks) * sizeof(float),
                      shard_of(buffer, ranks), DType::f32);
}

std::uint64_t Reducer::start(int number, const View& gradient, bool add) {
  const Buffer& buffer = setup_.layout->buffers[static_cast<std::size_t>(number)];
  if (setup_.message != DType::f32) {
    start_converted(buffer, gradient, add);
    return started_;
  }
  Stream& lane = setup_.backend->device().lane(Lane::data);
  Flight& flight = next_flight();
  flight = {{}, &buffer, gradient, {}, 0, shard_of(buffer, setup_.group->size()), add};
  const std::int64_t n = flight.end, rank = setup_.group->rank();
  if (everywhere(buffer)) {
    flight.request = setup_.group->start_all_reduce(gradient, Reduce::sum_rank_order, lane);
  } else {
    const View own = gradient.flat_range(rank * n, (rank + 1) * n);
    flight.request = setup_.group->start_reduce_scatter(gradient, own, Reduce::sum_rank_order, lane);
  }
  return started_;
}

/// Bucket by bucket: a bucket is the same range of every shard, so that all stages round the same sums.
void Reducer::start_converted(const Buffer& buffer, const View& gradient, bool add) {
  ElementwiseKernels& convert = *setup_.backend->kernels().elementwise;
  Stream& lane = setup_.backend->device().lane(Lane::data);
  const std::int64_t ranks = setup_.group->size(), shard = shard_of(buffer, setup_.group->size());
  const std::int64_t bucket = setup_.segment_elements / ranks;
  for (std::int64_t begin = 0; begin < shard; begin += bucket) {
    const auto segments = static_cast<std::uint64_t>(setup_.segments);
    if (started_ >= segments) finish_until(started_ - segments + 1);
    const std::size_t segment = started_ % segments;
    const std::int64_t end = std::min(begin + bucket, shard), n = end - begin;
    std::byte* const wire =
        setup_.wire + segment * static_cast<std::size_t>(setup_.segment_elements) * size_of(setup_.message);
    Flight& flight = next_flight();
    flight = {{}, &buffer, gradient, View::vector(wire, n * ranks, setup_.message), begin, end, add};
    for (std::int64_t r = 0; r < ranks; ++r) {
      convert.add(gradient.flat_range(r * shard + begin, r * shard + end), View{},
                  flight.message.flat_range(r * n, (r + 1) * n), lane);
    }
    if (everywhere(buffer)) {
      flight.request = setup_.group->start_all_reduce(flight.message, Reduce::sum_rank_order, lane);
    } else {
      const std::int64_t rank = setup_.group->rank();
      flight.request = setup_.group->start_reduce_scatter(
          flight.message, flight.message.flat_range(rank * n, (rank + 1) * n), Reduce::sum_rank_order, lane);
    }
  }
}

Reducer::Flight& Reducer::next_flight() {
  if (started_ - finished_ == flights_.size()) finish_oldest();
  return flights_[started_++ % flights_.size()];
}

void Reducer::finish_until(std::uint64_t count) {
  while (finished_ < count) finish_oldest();
}

void Reducer::finish_oldest() {
  const Flight& flight = flights_[finished_++ % flights_.size()];
  Stream& lane = setup_.backend->device().lane(Lane::data);
  setup_.group->finish(flight.request, lane);
  ElementwiseKernels& elementwise = *setup_.backend->kernels().elementwise;
  const std::int64_t ranks = setup_.group->size(), rank = setup_.group->rank();
  const std::int64_t shard = shard_of(*flight.buffer, setup_.group->size()), n = flight.end - flight.begin;
  const bool converted = !flight.message.empty();
  if (setup_.sums == Sums::shards) {
    const View sum = this->shard(*flight.buffer).flat_range(flight.begin, flight.end);
    const View piece = converted ? flight.message.flat_range(rank * n, (rank + 1) * n)
                                 : flight.gradient.flat_range(rank * shard, (rank + 1) * shard);
    if (flight.add) {
      elementwise.add(sum, piece, sum, lane);
    } else {
      elementwise.add(piece, View{}, sum, lane);
    }
  } else if (converted) {
    const bool all = everywhere(*flight.buffer);
    for (std::int64_t r = all ? 0 : rank; r < (all ? ranks : rank + 1); ++r) {
      elementwise.add(flight.message.flat_range(r * n, (r + 1) * n), View{},
                      flight.gradient.flat_range(r * shard + flight.begin, r * shard + flight.end), lane);
    }
  }
}

}  // namespace espalier::parallel_zero
