// Matrices that an optimizer updates as a whole: their owners collect gradients over data and tensor group, update, and
// give back.
#include <algorithm>

#include "window.hpp"
#include "zero.hpp"

namespace espalier::parallel_zero {
namespace {

/// The dimension of a view that a placement cuts: a vector is one row.
int axis_of(const LocalParameter& local) { return local.parameter.shape.rank() == 1 ? 1 : local.placement.dim; }

View range(const View& view, int axis, std::int64_t begin, std::int64_t end) {
  return axis == 0 ? view.row_range(begin, end) : view.col_range(begin, end);
}

/// What tensor rank `t` has of a logical tensor.
View part_of(const View& whole, const LocalParameter& local, int t) {
  const std::int64_t width = local.placement.end - local.placement.begin;
  const std::int64_t all = local.parameter.shape[local.placement.dim];
  return range(whole, axis_of(local), std::min(width * t, all), std::min(width * (t + 1), all));
}

/// A rank's own tensor without its padding.
View real_part(const View& tensor, const LocalParameter& local) {
  return range(tensor, axis_of(local), 0, local.placement.real_end - local.placement.begin);
}

}  // namespace

/// Whole matrices are put together from equal parts whose rows are messages as they lie.
void Zero::check_parts(const LocalParameter& local) const {
  const Placement& place = local.placement;
  const std::int64_t width = place.end - place.begin, all = local.parameter.shape[place.dim];
  const bool padded_rows = local.parameter.shape.rank() == 2 && place.dim == 1 && width * tensor_.size() != all;
  if (place.begin == width * tensor_.rank() && !padded_rows) return;
  throw ConfigError("parallel_zero: the optimizer works on whole matrices (" + std::string(local.parameter.name) +
                    "), which parallel.tensor cuts into unequal parts over " + std::to_string(tensor_.size()) +
                    " ranks here; use a size that divides, or an optimizer that works element by element");
}

/// Each owner collects the shards of a matrix's gradient and updates it, one matrix after the other. Nobody waits for
/// what another rank sends later in this order.
void Zero::update_matrices(Optimizer& optimizer, const StepInputs& inputs, Stream& stream) {
  Device& device = backend_->device();
  Stream& lane = device.lane(Lane::data);
  for (std::size_t b = 0; b < layout_.buffers.size(); ++b) {
    const Buffer& buffer = layout_.buffers[b];
    if (buffer.owner < 0) continue;
    const View own = reducer_.shard(buffer);
    device.order(stream, lane);
    if (buffer.owner != data_.rank()) {
      data_.finish(data_.start_send(own, buffer.owner, 0, lane), lane);
      continue;
    }
    const View whole = View::vector(matrix_memory_.data(), buffer.elements, DType::f32);
    Window window(data_, lane);
    for (int r = 0; r < data_.size(); ++r) {
      const View place = whole.flat_range(r * own.elements(), (r + 1) * own.elements());
      if (r == data_.rank()) {
        device.copy(own, place, lane);
      } else {
        window.add(data_.start_receive(place, r, 0, lane));
      }
    }
    window.finish_all();
    device.order(lane, stream);
    for (const Block& block : blocks_) {
      if (block.buffer == static_cast<int>(b) && !block.whole) update(block, optimizer, inputs, stream);
    }
    for (const Split& split : splits_) {
      if (split.buffer == static_cast<int>(b)) update_split(split, optimizer, inputs, stream);
    }
  }
}

/// A matrix over the tensor group, on the data rank that owns it. The owner's weights start as the rounded master, so
/// that a step that is skipped gives back what was there.
void Zero::update_split(const Split& split, Optimizer& optimizer, const StepInputs& inputs, Stream& stream) {
  Device& device = backend_->device();
  Stream& lane = device.lane(Lane::data);
  device.order(stream, lane);
  collect(split, split.gradient, whole_view(split, whole_gradient_memory_, DType::f32), lane);
  const View weights = whole_view(split, whole_weight_memory_, working_);
  if (!keeps_master()) collect(split, split.weights, weights, lane);
  if (split.block >= 0) {
    device.order(lane, stream);
    const Block& block = blocks_[static_cast<std::size_t>(split.block)];
    if (keeps_master()) backend_->kernels().elementwise->add(block.master, View{}, weights, stream);
    update(block, optimizer, inputs, stream);
    device.order(stream, lane);
  }
  give_back(split, weights, lane);
  device.order(lane, stream);
}

/// The owners' true weights, rounded, become those of all ranks.
void Zero::refresh_splits(Stream& stream) {
  if (!keeps_master()) return;  // each rank's own weights are the true ones
  Device& device = backend_->device();
  Stream& lane = device.lane(Lane::data);
  for (const Split& split : splits_) {
    const View weights = whole_view(split, whole_weight_memory_, working_);
    if (split.block >= 0) {
      const View& master = blocks_[static_cast<std::size_t>(split.block)].master;
      backend_->kernels().elementwise->add(master, View{}, weights, stream);
    }
    device.order(stream, lane);
    give_back(split, weights, lane);
    device.order(lane, stream);
  }
}

View Zero::whole_view(const Split& split, const DeviceMemory& memory, DType dtype) const {
  const Shape& shape = parameters_[static_cast<std::size_t>(split.position)].parameter.shape;
  return View::matrix(memory.data(), shape.rows(), shape.cols(), dtype);
}

/// Every tensor rank's part of a matrix, put together at its owner.
void Zero::collect(const Split& split, const View& own, const View& whole, Stream& lane) {
  const LocalParameter& local = parameters_[static_cast<std::size_t>(split.position)];
  const int owner = layout_.buffers[static_cast<std::size_t>(split.buffer)].tensor_owner;
  const View real = real_part(own, local);
  if (tensor_.rank() != owner) {
    if (!real.empty()) tensor_.finish(tensor_.start_send(real.flat(), owner, 0, lane), lane);
    return;
  }
  for (int t = 0; t < tensor_.size(); ++t) {
    const View part = part_of(whole, local, t);
    if (part.empty()) continue;
    if (t == owner) {
      backend_->device().copy(real, part, lane);
      continue;
    }
    const View message = part.contiguous() ? part : View::matrix(part_memory_.data(), part.rows, part.cols, part.dtype);
    tensor_.finish(tensor_.start_receive(message.flat(), t, 0, lane), lane);
    if (!part.contiguous()) backend_->device().copy(message, part, lane);
  }
}

/// The way back.
void Zero::give_back(const Split& split, const View& whole, Stream& lane) {
  const LocalParameter& local = parameters_[static_cast<std::size_t>(split.position)];
  const int owner = layout_.buffers[static_cast<std::size_t>(split.buffer)].tensor_owner;
  const View real = real_part(split.weights, local);
  if (tensor_.rank() != owner) {
    if (!real.empty()) tensor_.finish(tensor_.start_receive(real.flat(), owner, 0, lane), lane);
    return;
  }
  for (int t = 0; t < tensor_.size(); ++t) {
    const View part = part_of(whole, local, t);
    if (part.empty()) continue;
    if (t == owner) {
      backend_->device().copy(part, real, lane);
      continue;
    }
    const View message = part.contiguous() ? part : View::matrix(part_memory_.data(), part.rows, part.cols, part.dtype);
    if (!part.contiguous()) backend_->device().copy(part, message, lane);
    tensor_.finish(tensor_.start_send(message.flat(), t, 0, lane), lane);
  }
}

}  // namespace espalier::parallel_zero
