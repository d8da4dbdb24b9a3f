#include "zero.hpp"

#include <algorithm>
#include <string>

namespace espalier::parallel_zero {

Zero::Zero(const ConfigView& config, HostContext& host)
    : options_(read_options(config)),
      host_(host),
      data_(host.communicator(Group::data)),
      tensor_(host.communicator(Group::tensor)),
      pipeline_(host.communicator(Group::pipeline)) {}

bool Zero::ties() const {
  return pipeline_.size() > 1 && (pipeline_.rank() == 0 || pipeline_.rank() == pipeline_.size() - 1);
}

bool Zero::holds(const Buffer& buffer, int shard) const {
  return shard == data_.rank() || (options_.stage == 0 && buffer.owner < 0);
}

View Zero::buffer_view(const DeviceMemory& memory, const Buffer& buffer, DType dtype) const {
  return View::vector(memory.data() + static_cast<std::size_t>(buffer.at) * size_of(dtype), buffer.elements, dtype);
}

/// What the reduction left on this rank: its shard, or everything.
View Zero::own_range(const Buffer& buffer, const View& whole) const {
  if (options_.stage == 0 || buffer.owner >= 0) return whole;
  const std::int64_t shard = shard_of(buffer, data_.size());
  return whole.flat_range(shard * data_.rank(), shard * (data_.rank() + 1));
}

void Zero::check(const StatePlan& plan, const Optimizer& optimizer) const {
  if (plan.precision.accumulate != DType::f32) {
    throw ConfigError("parallel_zero: gradients are accumulated in f32, the optimizer asks for " +
                      std::string(name_of(plan.precision.accumulate)));
  }
  const auto specs = optimizer.state();
  const auto master = std::find_if(specs.begin(), specs.end(),
                                   [](const StateSpec& spec) { return std::string_view(spec.name) == "master"; });
  const DType truth = master == specs.end() ? plan.precision.working : master->dtype;
  if (truth != DType::f32) {
    throw ConfigError("parallel_zero: the true weights must be f32: with " +
                      std::string(name_of(plan.precision.working)) +
                      " working weights the optimizer must declare an f32 state \"master\"");
  }
  for (const LocalParameter& local : plan.parameters) {
    if (local.placement.dim >= 0 && optimizer.unit(local.parameter) == Unit::tensor) {
      throw ConfigError("parallel_zero: the optimizer works on whole matrices (" + std::string(local.parameter.name) +
                        "), which are split over a tensor group of " + std::to_string(tensor_.size()) +
                        " here; use parallel.tensor.size = 1, or an optimizer that works element by element");
    }
  }
}

/// Elements of the message dtype for one bucket, and of f32 for what the other end of the tie sends.
std::int64_t Zero::scratch_elements(const Layout& layout, DType message) const {
  std::int64_t largest = 0, tied = 0;
  for (const Buffer& buffer : layout.buffers) {
    largest = std::max(largest, buffer.elements);
    if (buffer.kind == Class::tied) tied = std::max(tied, buffer.elements);
  }
  const auto bucket = [&](std::int64_t elements, DType dtype) {
    const std::int64_t limit = options_.bucket_bytes / static_cast<std::int64_t>(size_of(dtype));
    return std::min(elements, std::max<std::int64_t>(limit / data_.size(), 1) * data_.size());
  };
  std::int64_t bytes = 0;
  if (data_.size() > 1 && message != DType::f32)
    bytes = bucket(largest, message) * static_cast<std::int64_t>(size_of(message));
  if (tied > 0 && pipeline_.size() > 1) bytes = std::max(bytes, bucket(tied, DType::f32) * std::int64_t{4});
  return (bytes + 3) / 4;
}

StateBytes Zero::plan(const StatePlan& plan, const Optimizer& optimizer) const {
  check(plan, optimizer);
  const Layout layout = make_layout(plan, optimizer, data_.size());
  StateBytes bytes;
  bytes.weights = static_cast<std::size_t>(layout.elements) * size_of(plan.precision.working);
  bytes.gradients = static_cast<std::size_t>(layout.elements) * sizeof(float);
  for (const StateSpec& spec : optimizer.state()) {
    bytes.optimizer += static_cast<std::size_t>(state_elements(layout, spec)) * size_of(spec.dtype);
  }
  bytes.scratch = static_cast<std::size_t>(scratch_elements(layout, message(plan.precision))) * sizeof(float);
  return bytes;
}

void Zero::bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) {
  check(plan, optimizer);
  backend_ = &backend;
  parameters_ = plan.parameters;
  specs_.assign(optimizer.state().begin(), optimizer.state().end());
  working_ = plan.precision.working;
  message_ = message(plan.precision);
  layout_ = make_layout(plan, optimizer, data_.size());

  Device& device = backend.device();
  const auto elements = static_cast<std::size_t>(layout_.elements);
  weight_memory_ = device.reserve(elements * size_of(working_), "weights");
  gradient_memory_ = device.reserve(elements * sizeof(float), "gradients");
  scratch_memory_ =
      device.reserve(static_cast<std::size_t>(scratch_elements(layout_, message_)) * sizeof(float), "scratch");
  state_memory_.clear();
  for (const StateSpec& spec : specs_) {
    const auto n = static_cast<std::size_t>(state_elements(layout_, spec));
    state_memory_.push_back(device.reserve(n * size_of(spec.dtype), "optimizer"));
  }

  weights_.clear();
  gradients_.clear();
  written_.assign(parameters_.size(), false);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Buffer& buffer = layout_.buffers[static_cast<std::size_t>(layout_.places[p].parameter)];
    const Shape& shape = parameters_[p].placement.local;
    const auto place = [&](const DeviceMemory& memory, DType dtype) {
      const auto offset = static_cast<std::size_t>(buffer.at + layout_.places[p].begin) * size_of(dtype);
      return View::matrix(memory.data() + offset, shape.rows(), shape.cols(), dtype);
    };
    weights_.push_back(place(weight_memory_, working_));
    gradients_.push_back(place(gradient_memory_, DType::f32));
  }
  make_blocks(plan, optimizer);
  fill_initial_state(device);
  version_ += 1;
  host_.log(LogLevel::info, "stage " + std::to_string(options_.stage) + " over " + std::to_string(data_.size()) +
                                " ranks: " + std::to_string(layout_.buffers.size()) + " buffers, " +
                                std::to_string(layout_.elements) + " elements, of them " +
                                std::to_string(layout_.padding) + " padding; gradients travel as " +
                                std::string(name_of(message_)));
}

GradientSlot Zero::gradient(int parameter, int) {
  const auto p = static_cast<std::size_t>(parameter);
  const bool add = written_[p] || written_in_parts(parameters_[p].parameter);
  written_[p] = true;
  return {gradients_[p], add};
}

void Zero::squares(double* slots, Stream& stream) {
  for (const Block& block : blocks_) {
    if (!block.counts) continue;
    backend_->kernels().update->squared_sum(block.gradient.flat(), slots + block.parameter->index, stream);
  }
}

void Zero::step(Optimizer& optimizer, const StepInputs& inputs, Stream& stream) {
  for (const Block& block : blocks_) {
    const std::span<const View> states(states_.data() + block.first_state, specs_.size());
    optimizer.update({block.parameter, block.gradient, block.working, states, block.master}, inputs,
                     *backend_->kernels().update, stream);
  }
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (written_in_parts(parameters_[p].parameter)) backend_->device().fill_zero(gradients_[p], stream);
    written_[p] = false;
  }
  gather_weights(stream);
  version_ += 1;
}

/// Brings what the owners have updated to everyone.
void Zero::gather_weights(Stream& stream) {
  if (data_.size() == 1) return;
  Stream& lane = backend_->device().lane(Lane::data);
  backend_->device().order(stream, lane);
  Window window(data_, lane);
  for (const Buffer& buffer : layout_.buffers) {
    const View whole = buffer_view(weight_memory_, buffer, working_);
    if (buffer.owner >= 0) {
      window.add(data_.start_broadcast(whole, buffer.owner, lane));
    } else if (options_.stage >= 1) {
      window.add(data_.start_all_gather(own_range(buffer, whole), whole, lane));
    }
  }
  window.finish_all();
  backend_->device().order(lane, stream);
}

}  // namespace espalier::parallel_zero
