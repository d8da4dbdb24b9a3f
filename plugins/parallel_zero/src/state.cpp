// Where the optimizer's state lies, the blocks that are updated, and what checkpoints see of them.
#include <algorithm>

#include "zero.hpp"

namespace espalier::parallel_zero {
namespace {

constexpr std::int64_t kSlot = 64;  // elements between numbers of Keep::per_tensor, so that each starts a cache line

bool is_master(const StateSpec& spec) { return std::string_view(spec.name) == "master"; }

}  // namespace

bool Zero::keeps_master() const { return std::any_of(specs_.begin(), specs_.end(), is_master); }

/// Equal copies are counted, and written into checkpoints, by one of those that hold them.
bool Zero::counts(const Buffer& buffer, const LocalParameter& local) const {
  const bool split = local.placement.copies == Copies::split;
  return (split || tensor_.rank() == 0) && (buffer.kind != Class::tied || pipeline_.rank() == 0);
}

void Zero::make_blocks(const StatePlan& plan, const Optimizer& optimizer) {
  blocks_.clear();
  states_.clear();
  splits_.clear();
  std::int64_t state_at = 0;  // first element in the memory of like_parameter state
  for (std::size_t b = 0; b < layout_.buffers.size(); ++b) {
    const Buffer& buffer = layout_.buffers[b];
    for (int r = 0; r < data_.size(); ++r) {
      const bool held = r == data_.rank() || (!shards_state() && buffer.owner < 0);
      if (!held) continue;
      for (const Item& item : buffer.items) {
        if (buffer.tensor_owner >= 0) {
          if (buffer.owner == data_.rank()) {
            add_split(buffer, static_cast<int>(b), state_at, plan.parameters[static_cast<std::size_t>(item.parameter)]);
          }
          continue;
        }
        add_block(buffer, static_cast<int>(b), r, item, state_at,
                  plan.parameters[static_cast<std::size_t>(item.parameter)], optimizer);
      }
      state_at += kept_elements(buffer, r);
    }
  }
}

/// What rank `shard` owns of one parameter, if anything.
void Zero::add_block(const Buffer& buffer, int number, int shard, const Item& item, std::int64_t state_at,
                     const LocalParameter& local, const Optimizer& optimizer) {
  const std::int64_t owned = owned_elements(buffer, shard, data_.size());
  const std::int64_t owned_begin = buffer.owner >= 0 ? 0 : shard * owned;
  const std::int64_t begin = std::max(item.begin, owned_begin);
  const std::int64_t end = std::min(item.begin + item.elements, owned_begin + owned);
  if (begin >= end) return;
  const auto p = static_cast<std::size_t>(item.parameter);
  const Shape& shape = local.placement.local;
  const bool matrix = optimizer.unit(local.parameter) == Unit::tensor;
  const auto shaped = [&](const View& flat) {
    return matrix ? View::matrix(flat.data, shape.rows(), shape.cols(), flat.dtype) : flat;
  };
  Block block;
  block.parameter = &local.parameter;
  block.position = item.parameter;
  block.buffer = number;
  block.begin = begin - item.begin;
  block.end = end - item.begin;
  block.writes = shard == data_.rank() && counts(buffer, local);
  if (shards_gradients() && buffer.owner >= 0) {
    block.gradient = shaped(View::vector(matrix_memory_.data(), item.elements, DType::f32));
  } else if (shards_gradients()) {
    block.gradient = reducer_.shard(buffer).flat_range(begin - owned_begin, end - owned_begin);
  } else {
    block.gradient = shaped(gradients_[p].flat().flat_range(block.begin, block.end));
  }
  if (shards_weights()) {
    const std::int64_t at = owned_at_[static_cast<std::size_t>(number)] + begin - owned_begin;
    block.working = shaped(
        View::vector(weight_memory_.data() + static_cast<std::size_t>(at) * size_of(working_), end - begin, working_));
  } else {
    block.working = shaped(weights_[p].flat().flat_range(block.begin, block.end));
  }
  block.master = block.working;
  bind_states(block, state_at + begin - owned_begin, end - begin, shard, matrix ? &shape : nullptr);
  blocks_.push_back(block);
}

/// The state of a block, and what follows from whether there is a master.
/// @param like_at  its first element in memory of state like parameters.  @param shape  of a whole matrix, else null.
void Zero::bind_states(Block& block, std::int64_t like_at, std::int64_t elements, int shard, const Shape* shape) {
  block.first_state = states_.size();
  for (std::size_t s = 0; s < specs_.size(); ++s) {
    const DType dtype = specs_[s].dtype;
    const bool like = specs_[s].keep == Keep::like_parameter;
    std::int64_t at = like ? like_at : 0;
    if (specs_[s].keep == Keep::per_tensor) {
      at = (std::ssize(layout_.places) * (shards_state() ? 0 : shard) + block.position) * kSlot;
    }
    std::byte* data = state_memory_[s].data() + static_cast<std::size_t>(at) * size_of(dtype);
    View view = View::vector(data, like ? elements : 1, dtype);
    if (like && shape != nullptr) view = View::matrix(data, shape->rows(), shape->cols(), dtype);
    states_.push_back(view);
    if (is_master(specs_[s])) block.master = states_.back();
  }
  if (!keeps_master()) block.working = {};
}

/// A matrix over the tensor group, on the data rank that owns it: this rank's part, and all of it where this rank
/// updates it.
void Zero::add_split(const Buffer& buffer, int number, std::int64_t state_at, const LocalParameter& local) {
  const Item& item = buffer.items[0];
  const auto p = static_cast<std::size_t>(item.parameter);
  Split split;
  split.position = item.parameter;
  split.buffer = number;
  split.writes = counts(buffer, local);
  const Shape& part = local.placement.local;
  split.gradient = gradients_[p];
  if (shards_gradients()) split.gradient = View::matrix(matrix_memory_.data(), part.rows(), part.cols(), DType::f32);
  split.weights = weights_[p];
  if (shards_weights()) {
    const auto at = static_cast<std::size_t>(owned_at_[static_cast<std::size_t>(number)]);
    split.weights = View::matrix(weight_memory_.data() + at * size_of(working_), part.rows(), part.cols(), working_);
  }
  if (buffer.tensor_owner == tensor_.rank()) {
    split.block = static_cast<int>(blocks_.size());
    Block block;
    block.parameter = &local.parameter;
    block.position = item.parameter;
    block.buffer = number;
    block.end = local.parameter.shape.elements();
    block.writes = split.writes;
    block.whole = true;
    block.gradient = whole_view(split, whole_gradient_memory_, DType::f32);
    block.working = whole_view(split, whole_weight_memory_, working_);
    block.master = block.working;
    bind_states(block, state_at, block.end, buffer.owner, &local.parameter.shape);
    blocks_.push_back(block);
  }
  splits_.push_back(split);
}

/// Squares are counted shard by shard at every stage, so that all of them add the same numbers in the same order.
void Zero::count_squares() {
  counted_.clear();
  for (const Buffer& buffer : layout_.buffers) {
    const std::int64_t shard = shard_of(buffer, data_.size()), shard_begin = shard * data_.rank();
    for (const Item& item : buffer.items) {
      const std::int64_t begin = std::max(item.begin, shard_begin);
      const std::int64_t end = std::min(item.begin + item.elements, shard_begin + shard);
      const LocalParameter& local = parameters_[static_cast<std::size_t>(item.parameter)];
      if (begin >= end || !counts(buffer, local)) continue;
      const View range = shards_gradients() ? reducer_.shard(buffer).flat_range(begin - shard_begin, end - shard_begin)
                                            : whole_gradient(buffer).flat_range(begin, end);
      counted_.push_back({local.parameter.index, range});
    }
  }
}

void Zero::fill_initial_state(Device& device) {
  Stream& stream = device.lane(Lane::compute);
  for (std::size_t s = 0; s < specs_.size(); ++s) {
    const StateSpec& spec = specs_[s];
    if (spec.initial == 0) continue;  // reserved memory is zero
    const auto n = static_cast<std::int64_t>(state_memory_[s].bytes() / size_of(spec.dtype));
    const bool known = with_float_type(spec.dtype, [&](auto type) {
      using T = decltype(type);
      std::vector<T> values(static_cast<std::size_t>(n), from_float<T>(spec.initial));
      device.copy(View::vector(values.data(), n, spec.dtype), View::vector(state_memory_[s].data(), n, spec.dtype),
                  stream);
      device.wait(stream);
    });
    ESPALIER_ASSERT(known);
  }
}

std::vector<StatePiece> Zero::state() {
  std::vector<StatePiece> pieces;
  for (const Split& split : splits_) {
    if (keeps_master()) break;
    const View weights = split.weights.flat();
    pieces.push_back({split.position, "master", 0, weights.elements(), weights, split.writes});
  }
  for (const Block& block : blocks_) {
    if (!block.whole || keeps_master()) {
      const View master = block.master.flat();
      pieces.push_back({block.position, "master", block.begin, block.end, master, block.writes, block.whole});
    }
    for (std::size_t s = 0; s < specs_.size(); ++s) {
      const View view = states_[block.first_state + s].flat();
      if (is_master(specs_[s]) || specs_[s].keep == Keep::global) continue;
      if (specs_[s].keep == Keep::like_parameter) {
        pieces.push_back({block.position, specs_[s].name, block.begin, block.end, view, block.writes, block.whole});
      } else {
        // One number for the parameter: that of its first shard is the one that is kept.
        pieces.push_back({block.position, specs_[s].name, 0, 1, view, block.writes && block.begin == 0});
      }
    }
  }
  const bool first = data_.rank() == 0 && tensor_.rank() == 0 && pipeline_.rank() == 0;
  for (std::size_t s = 0; s < specs_.size(); ++s) {
    if (specs_[s].keep != Keep::global) continue;
    pieces.push_back({-1, specs_[s].name, 0, 1, View::vector(state_memory_[s].data(), 1, specs_[s].dtype), first});
  }
  return pieces;
}

void Zero::refresh(Stream& stream) {
  sync(stream);
  for (const Block& block : blocks_) {
    if (block.working && !block.whole) {
      backend_->kernels().elementwise->add(block.master, View{}, block.working, stream);
    }
  }
  refresh_splits(stream);
  spread_weights(true, stream);
  version_ += 1;
}

}  // namespace espalier::parallel_zero
