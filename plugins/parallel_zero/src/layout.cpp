#include "layout.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace espalier::parallel_zero {
namespace {

constexpr std::int64_t kAlign = 64;  // elements: 128 bytes of BF16, 256 of FP32

std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

Class class_of(const LocalParameter& local) {
  if (local.parameter.tied) return Class::tied;
  switch (local.placement.copies) {
    case Copies::split:
      return Class::split;
    case Copies::whole:
      return Class::whole;
    case Copies::partial:
      return Class::partial;
  }
  return Class::whole;
}

/// Sizes are those of logical matrices: the same on every tensor rank.
void choose_owners(std::vector<Buffer>& buffers, std::span<const LocalParameter> parameters, int ranks, int tensors) {
  std::vector<Buffer*> owned;
  for (Buffer& buffer : buffers) {
    if (buffer.owner >= 0) owned.push_back(&buffer);
  }
  const auto parameter = [&](const Buffer* buffer) -> const LocalParameter& {
    return parameters[static_cast<std::size_t>(buffer->items[0].parameter)];
  };
  const auto size = [&](const Buffer* buffer) { return parameter(buffer).parameter.shape.elements(); };
  std::sort(owned.begin(), owned.end(), [&](const Buffer* a, const Buffer* b) {
    if (size(a) != size(b)) return size(a) > size(b);
    return parameter(a).parameter.name < parameter(b).parameter.name;
  });
  // [data rank · tensors + tensor rank]; a matrix that every tensor rank has is work for all of them.
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks * tensors));
  for (Buffer* buffer : owned) {
    auto least = std::min_element(load.begin(), load.end());
    const int at = static_cast<int>(least - load.begin());
    buffer->owner = at / tensors;
    if (tensors > 1 && parameter(buffer).placement.dim >= 0) {
      buffer->tensor_owner = at % tensors;
      buffer->logical = round_up(size(buffer), kAlign);
      *least += size(buffer);
      continue;
    }
    for (int t = 0; t < tensors; ++t) load[static_cast<std::size_t>(buffer->owner * tensors + t)] += size(buffer);
  }
}

/// The group of a parameter; makes it where it is the first.
int group_of(Layout& layout, const Parameter& parameter) {
  const Half half = parameter.shape.rank() == 1 ? Half::input : Half::weight;
  const auto layer = static_cast<std::size_t>(parameter.layer);
  if (layout.by_layer.size() <= layer) layout.by_layer.resize(layer + 1, {-1, -1});
  int& number = layout.by_layer[layer][static_cast<std::size_t>(half)];
  if (number < 0) {
    number = static_cast<int>(layout.groups.size());
    const bool table = written_in_parts(parameter);
    const Pool pool = half == Half::input ? Pool::vectors : table ? Pool::tables : Pool::blocks;
    layout.groups.push_back({parameter.layer, half, pool, 0, {}});
  }
  return number;
}

}  // namespace

bool written_in_parts(const Parameter& parameter) {
  return parameter.tied || parameter.role == Role::word_embedding || parameter.role == Role::position_embedding ||
         parameter.role == Role::head_weight;
}

Layout make_layout(const StatePlan& plan, const Optimizer& optimizer, int ranks, int tensors) {
  Layout layout;
  layout.places.resize(plan.parameters.size());
  std::map<std::pair<int, Class>, std::size_t> open;  // buffer of (group, class)
  for (std::size_t p = 0; p < plan.parameters.size(); ++p) {
    const LocalParameter& local = plan.parameters[p];
    const Class kind = class_of(local);
    const int group = group_of(layout, local.parameter);
    const bool whole_matrix = optimizer.unit(local.parameter) == Unit::tensor;
    std::size_t index = layout.buffers.size();
    if (!whole_matrix) index = open.try_emplace({group, kind}, index).first->second;
    if (index == layout.buffers.size()) {
      Buffer buffer;
      buffer.kind = kind;
      buffer.group = group;
      buffer.owner = whole_matrix ? 0 : -1;
      layout.buffers.push_back(buffer);
      layout.groups[static_cast<std::size_t>(group)].buffers.push_back(static_cast<int>(index));
    }
    Buffer& buffer = layout.buffers[index];
    const std::int64_t n = local.placement.local.elements();
    buffer.items.push_back({static_cast<int>(p), buffer.elements, n});
    layout.places[p] = {static_cast<int>(index), buffer.elements, n};
    buffer.elements += round_up(n, kAlign);
    layout.padding -= n;
  }
  choose_owners(layout.buffers, plan.parameters, ranks, tensors);
  for (Buffer& buffer : layout.buffers) {
    BufferGroup& group = layout.groups[static_cast<std::size_t>(buffer.group)];
    buffer.elements = round_up(buffer.elements, kAlign * ranks);
    buffer.at = layout.elements;
    buffer.in_group = group.elements;
    layout.elements += buffer.elements;
    group.elements += buffer.elements;
  }
  layout.padding += layout.elements;
  return layout;
}

int Layout::find(int layer, Half half) const {
  const auto at = static_cast<std::size_t>(layer);
  return layer < 0 || at >= by_layer.size() ? -1 : by_layer[at][static_cast<std::size_t>(half)];
}

std::int64_t Layout::largest(Pool pool) const {
  std::int64_t most = 0;
  for (const BufferGroup& group : groups) most = group.pool == pool ? std::max(most, group.elements) : most;
  return most;
}

int Layout::count(Pool pool) const {
  return static_cast<int>(
      std::count_if(groups.begin(), groups.end(), [&](const BufferGroup& group) { return group.pool == pool; }));
}

}  // namespace espalier::parallel_zero
