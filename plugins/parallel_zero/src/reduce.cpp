// The sums of a step, in their order: data group, then what is partial over the tensor group, then the tied pair.
#include <algorithm>

#include "zero.hpp"

namespace espalier::parallel_zero {

void Zero::reduce(Do what, Stream& stream) {
  Device& device = backend_->device();
  if (what == Do::reduce_gradients) {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      // Nobody wrote it in this step, and what is there is of the last one.
      if (!written_[p] && !written_in_parts(parameters_[p].parameter)) device.fill_zero(gradients_[p], stream);
      written_[p] = true;
    }
    Stream& lane = device.lane(Lane::data);
    device.order(stream, lane);
    reduce_data(lane);
    reduce_partial(lane);
    device.order(lane, stream);
  } else if (what == Do::reduce_tied_gradients && ties()) {
    Stream& lane = device.lane(Lane::pipeline);
    device.order(stream, lane);
    reduce_tied(lane);
    device.order(lane, stream);
  }
}

void Zero::reduce_data(Stream& lane) {
  if (data_.size() == 1) return;
  Window window(data_, lane);
  for (const Buffer& buffer : layout_.buffers) {
    const View whole = buffer_view(gradient_memory_, buffer, DType::f32);
    if (message_ != DType::f32) {
      reduce_converted(buffer, lane);
    } else if (options_.stage == 0 || buffer.owner >= 0) {
      window.add(data_.start_all_reduce(whole, Reduce::sum_rank_order, lane));
    } else {
      window.add(data_.start_reduce_scatter(whole, own_range(buffer, whole), Reduce::sum_rank_order, lane));
    }
  }
  window.finish_all();
}

/// Bucket by bucket through the scratch: a bucket is the same range of every shard, so that stages 0 and 1 round the
/// same sums.
void Zero::reduce_converted(const Buffer& buffer, Stream& lane) {
  ElementwiseKernels& convert = *backend_->kernels().elementwise;
  const View whole = buffer_view(gradient_memory_, buffer, DType::f32);
  const int ranks = data_.size();
  const bool everywhere = options_.stage == 0 || buffer.owner >= 0;
  const std::int64_t scratch = static_cast<std::int64_t>(scratch_memory_.bytes() / size_of(message_));
  const std::int64_t parts = buffer.owner >= 0 ? 1 : ranks;
  const std::int64_t shard = buffer.elements / parts;
  const std::int64_t bucket = scratch / parts;
  for (std::int64_t begin = 0; begin < shard; begin += bucket) {
    const std::int64_t n = std::min(bucket, shard - begin);
    const View message = View::vector(scratch_memory_.data(), n * parts, message_);
    const auto piece = [&](std::int64_t r) { return message.flat_range(r * n, (r + 1) * n); };
    const auto place = [&](std::int64_t r) { return whole.flat_range(r * shard + begin, r * shard + begin + n); };
    for (std::int64_t r = 0; r < parts; ++r) convert.add(place(r), View{}, piece(r), lane);
    if (everywhere) {
      data_.finish(data_.start_all_reduce(message, Reduce::sum_rank_order, lane), lane);
      for (std::int64_t r = 0; r < parts; ++r) convert.add(piece(r), View{}, place(r), lane);
    } else {
      const View own = piece(data_.rank());
      data_.finish(data_.start_reduce_scatter(message, own, Reduce::sum_rank_order, lane), lane);
      convert.add(own, View{}, place(data_.rank()), lane);
    }
  }
}

/// Norms and row-parallel biases under sequence parallelism: each tensor rank has seen only its tokens.
void Zero::reduce_partial(Stream& lane) {
  if (tensor_.size() == 1) return;
  Window window(tensor_, lane);
  for (const Buffer& buffer : layout_.buffers) {
    if (buffer.kind != Class::partial) continue;
    const View range = own_range(buffer, buffer_view(gradient_memory_, buffer, DType::f32));
    window.add(tensor_.start_all_reduce(range, Reduce::sum_rank_order, lane));
  }
  window.finish_all();
}

/// First and last stage swap their sums and add them: with two numbers either order gives the same bits.
void Zero::reduce_tied(Stream& lane) {
  const int other = pipeline_.rank() == 0 ? pipeline_.size() - 1 : 0;
  for (const Buffer& buffer : layout_.buffers) {
    if (buffer.kind != Class::tied) continue;
    const View range = own_range(buffer, buffer_view(gradient_memory_, buffer, DType::f32));
    const auto bucket = static_cast<std::int64_t>(scratch_memory_.bytes() / sizeof(float));
    for (std::int64_t begin = 0; begin < range.elements(); begin += bucket) {
      const View mine = range.flat_range(begin, std::min(begin + bucket, range.elements()));
      const View theirs = View::vector(scratch_memory_.data(), mine.elements(), DType::f32);
      const Request in = pipeline_.start_receive(theirs, other, 0, lane);
      const Request out = pipeline_.start_send(mine, other, 0, lane);
      pipeline_.finish(in, lane);
      pipeline_.finish(out, lane);
      backend_->kernels().elementwise->add(mine, theirs, mine, lane);
    }
  }
}

}  // namespace espalier::parallel_zero
