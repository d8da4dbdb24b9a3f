// Where the optimizer's state lies, the blocks that are updated, and what checkpoints see of them.
#include <algorithm>

#include "zero.hpp"

namespace espalier::parallel_zero {
namespace {

constexpr std::int64_t kSlot = 64;  // elements between numbers of Keep::per_tensor, so that each starts a cache line

bool is_master(const StateSpec& spec) { return std::string_view(spec.name) == "master"; }

}  // namespace

bool Zero::keeps_master() const { return std::any_of(specs_.begin(), specs_.end(), is_master); }

std::int64_t Zero::state_elements(const Layout& layout, const StateSpec& spec) const {
  std::int64_t n = 0;
  switch (spec.keep) {
    case Keep::global:
      return kSlot;
    case Keep::per_tensor:
      // A number for each shard of each parameter: stage 0 updates every shard as its owner in stage 1 would.
      return std::ssize(layout.places) * kSlot * (options_.stage == 0 ? data_.size() : 1);
    case Keep::like_parameter:
      for (const Buffer& buffer : layout.buffers) {
        if (buffer.owner >= 0) {
          n += buffer.owner == data_.rank() ? buffer.elements : 0;
        } else {
          n += options_.stage == 0 ? buffer.elements : shard_of(buffer, data_.size());
        }
      }
  }
  return n;
}

void Zero::make_blocks(const StatePlan& plan, const Optimizer& optimizer) {
  blocks_.clear();
  states_.clear();
  const int ranks = data_.size();
  std::int64_t shard_at = 0;  // first element of the shard in the memory of like_parameter state
  for (const Buffer& buffer : layout_.buffers) {
    const std::int64_t shard = shard_of(buffer, ranks);
    for (int r = 0; r < ranks; ++r) {
      if ((buffer.owner >= 0 && buffer.owner != r) || !holds(buffer, r)) continue;
      const std::int64_t shard_begin = buffer.owner >= 0 ? 0 : shard * r;
      for (const Item& item : buffer.items) {
        const std::int64_t begin = std::max(item.begin, shard_begin);
        const std::int64_t end = std::min(item.begin + item.elements, shard_begin + shard);
        if (begin >= end) continue;
        const auto p = static_cast<std::size_t>(item.parameter);
        const LocalParameter& local = plan.parameters[p];
        const bool matrix = optimizer.unit(local.parameter) == Unit::tensor;
        const auto shaped = [&](const View& flat) {
          return matrix ? View::matrix(flat.data, gradients_[p].rows, gradients_[p].cols, flat.dtype) : flat;
        };
        Block block;
        block.parameter = &local.parameter;
        block.position = item.parameter;
        block.shard = r;
        block.begin = begin - item.begin;
        block.end = end - item.begin;
        const bool split = local.placement.copies == Copies::split;
        block.counts = r == data_.rank() && (split || tensor_.rank() == 0) &&
                       (buffer.kind != Class::tied || pipeline_.rank() == 0);
        block.gradient = shaped(gradients_[p].flat().flat_range(block.begin, block.end));
        block.working = shaped(weights_[p].flat().flat_range(block.begin, block.end));
        block.master = block.working;
        block.first_state = states_.size();
        for (std::size_t s = 0; s < specs_.size(); ++s) {
          const DType dtype = specs_[s].dtype;
          std::int64_t at = 0;
          if (specs_[s].keep == Keep::like_parameter) at = shard_at + begin - shard_begin;
          if (specs_[s].keep == Keep::per_tensor) {
            at = (std::ssize(layout_.places) * (options_.stage == 0 ? r : 0) + item.parameter) * kSlot;
          }
          std::byte* data = state_memory_[s].data() + static_cast<std::size_t>(at) * size_of(dtype);
          const bool like = specs_[s].keep == Keep::like_parameter;
          const View view = View::vector(data, like ? end - begin : 1, dtype);
          states_.push_back(like ? shaped(view) : view);
          if (is_master(specs_[s])) block.master = states_.back();
        }
        if (!keeps_master()) block.working = {};
        blocks_.push_back(block);
      }
      shard_at += shard;
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
  for (const Block& block : blocks_) {
    pieces.push_back({block.position, "master", block.begin, block.end, block.master.flat(), block.counts});
    for (std::size_t s = 0; s < specs_.size(); ++s) {
      const View view = states_[block.first_state + s].flat();
      if (is_master(specs_[s]) || specs_[s].keep == Keep::global) continue;
      if (specs_[s].keep == Keep::like_parameter) {
        pieces.push_back({block.position, specs_[s].name, block.begin, block.end, view, block.counts});
      } else {
        // One number for the parameter: that of its first shard is the one that is kept.
        pieces.push_back({block.position, specs_[s].name, 0, 1, view, block.counts && block.begin == 0});
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
  for (const Block& block : blocks_) {
    if (block.working) backend_->kernels().elementwise->add(block.master, View{}, block.working, stream);
  }
  gather_weights(stream);
  version_ += 1;
}

}  // namespace espalier::parallel_zero
