// What can be done, and how much memory it takes.
#include <algorithm>
#include <string>

#include "zero.hpp"

namespace espalier::parallel_zero {
namespace {

constexpr std::int64_t kSlot = 64;  // elements between numbers of Keep::per_tensor, so that each starts a cache line

/// Elements of parameters, without padding, in a range of a buffer.
std::int64_t real_elements(const Buffer& buffer, std::int64_t begin, std::int64_t end) {
  std::int64_t n = 0;
  for (const Item& item : buffer.items) {
    n += std::max<std::int64_t>(0, std::min(end, item.begin + item.elements) - std::max(begin, item.begin));
  }
  return n;
}

/// Padding in all buffers, and in what one rank owns of them.
struct Padding {
  std::int64_t whole = 0, shards = 0, owned = 0;
  std::int64_t state = 0;  ///< in state like a parameter
};

Padding padding_of(const Layout& layout, std::span<const LocalParameter> parameters, int rank, int ranks,
                   int tensor_rank, bool state_sharded) {
  const auto logical_elements = [&](const Buffer& buffer) {
    return parameters[static_cast<std::size_t>(buffer.items[0].parameter)].parameter.shape.elements();
  };
  Padding padding;
  for (const Buffer& buffer : layout.buffers) {
    const std::int64_t n = shard_of(buffer, ranks);
    const std::int64_t whole = buffer.elements - real_elements(buffer, 0, buffer.elements);
    const std::int64_t shard = n - real_elements(buffer, rank * n, (rank + 1) * n);
    padding.whole += whole;
    padding.shards += shard;
    const std::int64_t owned = buffer.owner < 0 ? shard : buffer.owner == rank ? whole : 0;
    padding.owned += owned;
    if (buffer.tensor_owner >= 0) {
      const bool here = buffer.owner == rank && buffer.tensor_owner == tensor_rank;
      padding.state += here ? buffer.logical - logical_elements(buffer) : 0;
    } else {
      padding.state += buffer.owner < 0 && !state_sharded ? whole : owned;
    }
  }
  return padding;
}

}  // namespace

/// A tied embedding on a single stage is written by the head's chunk first and by the embedding's last, in memory of
/// its own kind: for one micro-batch after the other.
void Zero::check_tied_order(std::span<const Instruction> schedule) const {
  int last = 0;
  for (const Instruction& at : schedule) last = std::max(last, at.chunk);
  if (pipeline_.size() > 1 || last == 0) return;
  int open = -1;  // micro-batch that the head has written and the embedding has not
  for (const Instruction& at : schedule) {
    if (at.what != Do::backward && at.what != Do::backward_input) continue;
    if (at.chunk == last && open >= 0) {
      throw ConfigError("parallel.data.stage: the schedule computes the head's gradients of micro-batch " +
                        std::to_string(at.micro_batch) + " before the embedding's of micro-batch " +
                        std::to_string(open) +
                        "; stages 2 and 3 reduce a tied embedding after each micro-batch: use stage 0 or 1, an untied "
                        "head, or another schedule");
    }
    if (at.chunk == last) open = at.micro_batch;
    if (at.chunk == 0) open = -1;
  }
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
  const bool tied = std::any_of(plan.parameters.begin(), plan.parameters.end(),
                                [](const LocalParameter& local) { return local.parameter.tied; });
  if (tied && shards_gradients()) check_tied_order(plan.schedule);
  for (const LocalParameter& local : plan.parameters) {
    const bool split = tensor_.size() > 1 && local.placement.dim >= 0;
    if (split && optimizer.unit(local.parameter) == Unit::tensor) check_parts(local);
  }
}

/// Of what the sum over the data group leaves on a rank.
std::int64_t Zero::reduced_elements(const Buffer& buffer) const {
  const bool whole = !shards_gradients() && (!shards_state() || buffer.owner >= 0);
  return whole ? buffer.elements : shard_of(buffer, data_.size());
}

/// Elements of one bucket of messages that are not f32: a multiple of the ranks.
std::int64_t Zero::bucket_elements(const Layout& layout, DType message) const {
  std::int64_t largest = 0;
  for (const Buffer& buffer : layout.buffers) largest = std::max(largest, buffer.elements);
  const std::int64_t limit = options_.bucket_bytes / segments() / static_cast<std::int64_t>(size_of(message));
  const std::int64_t unit = std::int64_t{64} * data_.size();  // pieces start at a cache line
  return std::min(largest, std::max<std::int64_t>(limit / unit, 1) * unit);
}

Zero::Sizes Zero::sizes(const Layout& layout, DType message) const {
  Sizes sizes;
  const int ranks = data_.size();
  std::int64_t owned = 0, tied = 0;
  for (const Buffer& buffer : layout.buffers) {
    const std::int64_t n = owned_elements(buffer, data_.rank(), ranks);
    owned += n;
    if (buffer.kind == Class::tied) tied = std::max(tied, reduced_elements(buffer));
    if (buffer.owner >= 0) sizes.matrix = std::max(sizes.matrix, n);
    if (buffer.owner == data_.rank() && buffer.tensor_owner == tensor_.rank()) {
      sizes.logical = std::max(sizes.logical, buffer.logical);
      sizes.part = std::max(sizes.part, buffer.elements);
    }
  }
  sizes.weights = shards_weights() ? owned : layout.elements;
  sizes.gradients = shards_gradients() ? layout.elements / ranks : layout.elements;
  if (!shards_gradients()) sizes.matrix = 0;
  if (ranks > 1 && message != DType::f32) {
    const auto bytes = segments() * bucket_elements(layout, message) * static_cast<std::int64_t>(size_of(message));
    sizes.wire = (bytes + 3) / 4;
  }
  if (pipeline_.size() > 1) sizes.wire = std::max(sizes.wire, std::min(tied, options_.bucket_bytes / 4));
  if (shards_gradients()) sizes.open = plan_slots(layout, options_.overlap ? 2 : 1);
  if (shards_weights()) sizes.gathered = plan_slots(layout, 1 + options_.prefetch + options_.keep_gathered);
  return sizes;
}

std::int64_t Zero::state_elements(const Layout& layout, const StateSpec& spec) const {
  std::int64_t n = 0;
  switch (spec.keep) {
    case Keep::global:
      return kSlot;
    case Keep::per_tensor:
      // A number for each shard of each parameter: stage 0 updates every shard as its owner in stage 1 would.
      return std::ssize(layout.places) * kSlot * (shards_state() ? 1 : data_.size());
    case Keep::like_parameter:
      for (const Buffer& buffer : layout.buffers) {
        const bool all = !shards_state() && buffer.owner < 0;
        n += all ? buffer.elements : kept_elements(buffer, data_.rank());
      }
  }
  return n;
}

/// Elements of Keep::like_parameter state that goes with data rank `shard` of a buffer, on this tensor rank.
std::int64_t Zero::kept_elements(const Buffer& buffer, int shard) const {
  if (buffer.tensor_owner < 0) return owned_elements(buffer, shard, data_.size());
  return buffer.owner == shard && buffer.tensor_owner == tensor_.rank() ? buffer.logical : 0;
}

StateBytes Zero::plan(const StatePlan& plan, const Optimizer& optimizer) const {
  check(plan, optimizer);
  const Layout layout = make_layout(plan, optimizer, data_.size(), tensor_.size());
  const Sizes sizes = this->sizes(layout, message(plan.precision));
  const Padding padding =
      padding_of(layout, plan.parameters, data_.rank(), data_.size(), tensor_.rank(), shards_state());
  const auto bytes = [](std::int64_t elements, DType dtype) {
    return static_cast<std::size_t>(elements) * size_of(dtype);
  };
  const DType working = plan.precision.working;
  StateBytes result;
  result.weights = bytes(sizes.weights, working);
  result.gradients = bytes(sizes.gradients, DType::f32);
  std::size_t state_padding = 0;
  for (const StateSpec& spec : optimizer.state()) {
    result.optimizer += bytes(state_elements(layout, spec), spec.dtype);
    if (spec.keep == Keep::like_parameter) {
      state_padding += bytes(padding.state, spec.dtype);
    }
  }
  result.parts = {
      {"padding of weights", bytes(shards_weights() ? padding.owned : padding.whole, working)},
      {"padding of gradients", bytes(shards_gradients() ? padding.shards : padding.whole, DType::f32)},
      {"padding of optimizer state", state_padding},
      {"messages", bytes(sizes.wire, DType::f32)},
      {"gradients of one layer", bytes(sizes.open.elements(), DType::f32)},
      {"gathered layers", bytes(sizes.gathered.elements(), working)},
      {"gradient of one matrix", bytes(sizes.matrix, DType::f32)},
      {"one matrix over the tensor group", bytes(sizes.logical, DType::f32) + bytes(sizes.logical, working)},
      {"one part of that matrix", bytes(sizes.part, DType::f32)},
  };
  for (std::size_t i = 3; i < result.parts.size(); ++i) result.scratch += result.parts[i].bytes;
  return result;
}

}  // namespace espalier::parallel_zero
