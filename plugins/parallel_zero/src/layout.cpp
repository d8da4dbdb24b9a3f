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

void choose_owners(std::vector<Buffer>& buffers, std::span<const LocalParameter> parameters, int ranks) {
  std::vector<Buffer*> owned;
  for (Buffer& buffer : buffers) {
    if (buffer.owner >= 0) owned.push_back(&buffer);
  }
  std::sort(owned.begin(), owned.end(), [&](const Buffer* a, const Buffer* b) {
    if (a->elements != b->elements) return a->elements > b->elements;
    const auto name = [&](const Buffer* x) {
      return parameters[static_cast<std::size_t>(x->items[0].parameter)].parameter.name;
    };
    return name(a) < name(b);
  });
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks));
  for (Buffer* buffer : owned) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += buffer->elements;
    buffer->owner = static_cast<int>(least - load.begin());
  }
}

}  // namespace

bool written_in_parts(const Parameter& parameter) {
  return parameter.tied || parameter.role == Role::word_embedding || parameter.role == Role::position_embedding ||
         parameter.role == Role::head_weight;
}

Layout make_layout(const StatePlan& plan, const Optimizer& optimizer, int ranks) {
  Layout layout;
  layout.places.resize(plan.parameters.size());
  std::map<std::pair<int, Class>, std::size_t> open;  // buffer of (layer, class)
  for (std::size_t p = 0; p < plan.parameters.size(); ++p) {
    const LocalParameter& local = plan.parameters[p];
    const Class kind = class_of(local);
    const bool whole_matrix = optimizer.unit(local.parameter) == Unit::tensor;
    std::size_t index = layout.buffers.size();
    if (!whole_matrix) index = open.try_emplace({local.parameter.layer, kind}, index).first->second;
    if (index == layout.buffers.size())
      layout.buffers.push_back({local.parameter.layer, kind, 0, 0, whole_matrix ? 0 : -1, {}});
    Buffer& buffer = layout.buffers[index];
    const std::int64_t n = local.placement.local.elements();
    buffer.items.push_back({static_cast<int>(p), buffer.elements, n});
    layout.places[p] = {static_cast<int>(index), buffer.elements, n};
    buffer.elements += round_up(n, kAlign);
    layout.padding -= n;
  }
  choose_owners(layout.buffers, plan.parameters, ranks);
  for (Buffer& buffer : layout.buffers) {
    buffer.elements = round_up(buffer.elements, kAlign * (buffer.owner >= 0 ? 1 : ranks));
    buffer.at = layout.elements;
    layout.elements += buffer.elements;
  }
  layout.padding += layout.elements;
  return layout;
}

}  // namespace espalier::parallel_zero
