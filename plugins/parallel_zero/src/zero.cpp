#include "zero.hpp"

#include <algorithm>
#include <string>

#include "window.hpp"

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

void Zero::bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) {
  check(plan, optimizer);
  backend_ = &backend;
  parameters_ = plan.parameters;
  specs_.assign(optimizer.state().begin(), optimizer.state().end());
  working_ = plan.precision.working;
  message_ = message(plan.precision);
  layout_ = make_layout(plan, optimizer, data_.size(), tensor_.size());
  sizes_ = sizes(layout_, message_);

  Device& device = backend.device();
  const auto reserve = [&](std::int64_t elements, DType dtype, const char* purpose) {
    return device.reserve(static_cast<std::size_t>(elements) * size_of(dtype), purpose);
  };
  weight_memory_ = reserve(sizes_.weights, working_, "weights");
  gradient_memory_ = reserve(sizes_.gradients, DType::f32, "gradients");
  wire_memory_ = reserve(sizes_.wire, DType::f32, "scratch");
  open_memory_ = reserve(sizes_.open.elements(), DType::f32, "scratch");
  gathered_memory_ = reserve(sizes_.gathered.elements(), working_, "scratch");
  matrix_memory_ = reserve(sizes_.matrix, DType::f32, "scratch");
  whole_gradient_memory_ = reserve(sizes_.logical, DType::f32, "scratch");
  whole_weight_memory_ = reserve(sizes_.logical, working_, "scratch");
  part_memory_ = reserve(sizes_.part, DType::f32, "scratch");
  state_memory_.clear();
  for (const StateSpec& spec : specs_) {
    const auto bytes = static_cast<std::size_t>(state_elements(layout_, spec)) * size_of(spec.dtype);
    state_memory_.push_back(options_.offload ? device.reserve_near_host(bytes, "optimizer")
                                             : device.reserve(bytes, "optimizer"));
  }
  bind_views();
  bind_movers();
  make_blocks(plan, optimizer);
  count_squares();
  fill_initial_state(device);
  version_ += 1;
  host_.log(LogLevel::info, "stage " + std::to_string(options_.stage) + " over " + std::to_string(data_.size()) +
                                " ranks: " + std::to_string(layout_.buffers.size()) + " buffers, " +
                                std::to_string(layout_.elements) + " elements, of them " +
                                std::to_string(layout_.padding) + " padding; gradients travel as " +
                                std::string(name_of(message_)));
  const bool first = data_.rank() == 0 && tensor_.rank() == 0 && pipeline_.rank() == 0;
  if (first && data_.size() > 1 && pipeline_.size() == 1 && message_ == DType::f32 &&
      options_.bucket_bytes != kDefaultBucketBytes) {
    host_.log(LogLevel::warning, "bucket_bytes = " + std::to_string(options_.bucket_bytes) +
                                     " has no effect: gradients that travel as f32 need no scratch (reduce_dtype)");
  }
}

/// Places of parameters in what is whole on every rank.
void Zero::bind_views() {
  weights_.clear();
  gradients_.clear();
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Buffer& buffer = layout_.buffers[static_cast<std::size_t>(layout_.places[p].parameter)];
    const Shape& shape = parameters_[p].placement.local;
    const auto place = [&](const DeviceMemory& memory, DType dtype) {
      const auto offset = static_cast<std::size_t>(buffer.at + layout_.places[p].begin) * size_of(dtype);
      return View::matrix(memory.data() + offset, shape.rows(), shape.cols(), dtype);
    };
    weights_.push_back(shards_weights() ? View{} : place(weight_memory_, working_));
    gradients_.push_back(shards_gradients() ? View{} : place(gradient_memory_, DType::f32));
  }
}

/// What moves gradients and weights between ranks, and what is known of them before a step.
void Zero::bind_movers() {
  written_.assign(parameters_.size(), false);
  summed_.assign(layout_.buffers.size(), false);
  open_slot_.assign(layout_.groups.size(), -1);
  slot_sums_.assign(static_cast<std::size_t>(sizes_.open.slots()), 0);
  next_slot_.assign(kPools, 0);
  owned_at_.clear();
  std::int64_t at = 0;
  for (const Buffer& buffer : layout_.buffers) {
    owned_at_.push_back(at);
    at += owned_elements(buffer, data_.rank(), data_.size());
  }

  Reducer::Setup reducer;
  reducer.layout = &layout_;
  reducer.group = &data_;
  reducer.backend = backend_;
  reducer.sums = shards_gradients() ? Sums::shards : shards_state() ? Sums::own_range : Sums::everywhere;
  reducer.message = message_;
  reducer.wire = wire_memory_.data();
  reducer.segment_elements = bucket_elements(layout_, message_);
  reducer.segments = segments();
  reducer.shards = gradient_memory_.data();
  reducer_.bind(reducer);
  if (!shards_weights()) {
    whole_weights_.bind({&layout_, &data_, &backend_->device(), working_, weight_memory_.data(), shards_state()});
    return;
  }
  Gathered::Setup gathered;
  gathered.layout = &layout_;
  gathered.group = &data_;
  gathered.device = &backend_->device();
  gathered.working = working_;
  gathered.owned = weight_memory_.data();
  gathered.owned_at = owned_at_;
  gathered.slots = sizes_.gathered;
  gathered.memory = gathered_memory_.data();
  gathered.prefetch = options_.prefetch;
  gathered.keep = options_.keep_gathered > 0;
  gathered_.bind(gathered);
}

void Zero::begin(std::span<const LayerUse> uses, int micro_batches) {
  micro_batches_ = micro_batches;
  if (shards_weights()) gathered_.begin(uses);
}

void Zero::acquire(int layer, Need need, Stream& stream) {
  if (shards_weights()) {
    gathered_.acquire(layer, need, stream);
  } else {
    whole_weights_.acquire(layer, stream);
  }
}

void Zero::release(int layer, Need need) {
  if (shards_weights()) gathered_.release(layer, need);
}

View Zero::weight(int parameter) const {
  const auto p = static_cast<std::size_t>(parameter);
  if (!shards_weights()) return weights_[p];
  const Item& place = layout_.places[p];
  const Buffer& buffer = layout_.buffers[static_cast<std::size_t>(place.parameter)];
  const auto offset = static_cast<std::size_t>(buffer.in_group + place.begin) * size_of(working_);
  const Shape& shape = parameters_[p].placement.local;
  return View::matrix(gathered_.data(buffer.group) + offset, shape.rows(), shape.cols(), working_);
}

void Zero::squares(double* slots, Stream& stream) {
  for (const Counted& counted : counted_) {
    backend_->kernels().update->squared_sum(counted.gradient, slots + counted.index, stream);
  }
}

void Zero::step(Optimizer& optimizer, const StepInputs& inputs, Stream& stream) {
  sync(stream);  // what no forward has used
  const bool matrices_apart = shards_gradients();
  if (matrices_apart) {
    update_matrices(optimizer, inputs, stream);
  } else {
    for (const Split& split : splits_) update_split(split, optimizer, inputs, stream);
  }
  for (const Block& block : blocks_) {
    if (block.whole) continue;
    const bool matrix = layout_.buffers[static_cast<std::size_t>(block.buffer)].owner >= 0;
    if (!matrix || !matrices_apart) update(block, optimizer, inputs, stream);
  }
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (!shards_gradients() && written_in_parts(parameters_[p].parameter)) {
      backend_->device().fill_zero(gradients_[p], stream);
    }
    written_[p] = false;
  }
  summed_.assign(summed_.size(), false);
  spread_weights(!options_.overlap, stream);
  version_ += 1;
}

void Zero::update(const Block& block, Optimizer& optimizer, const StepInputs& inputs, Stream& stream) {
  const std::span<const View> states(states_.data() + block.first_state, specs_.size());
  optimizer.update({block.parameter, block.gradient, block.working, states, block.master}, inputs,
                   *backend_->kernels().update, stream);
}

/// What the owners have updated becomes everyone's: at once, or when it is used.
void Zero::spread_weights(bool at_once, Stream& stream) {
  if (data_.size() == 1) return;
  if (shards_weights()) {
    gathered_.drop();
    return;
  }
  whole_weights_.changed();
  if (at_once) whole_weights_.gather(stream);
}

void Zero::sync(Stream& stream) {
  if (!shards_weights()) whole_weights_.gather(stream);
}

}  // namespace espalier::parallel_zero
