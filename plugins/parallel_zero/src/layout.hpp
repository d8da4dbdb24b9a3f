#pragma once

#include <cstdint>
#include <vector>

#include "espalier/parallel/data.hpp"

namespace espalier::parallel_zero {

/// Classes of a layer's parameters: each has a buffer of its own, because each is summed over other ranks.
enum class Class : std::uint8_t { split, whole, partial, tied };

/// A parameter's place in its buffer.
struct Item {
  int parameter = 0;
  std::int64_t begin = 0;  ///< element of the buffer
  std::int64_t elements = 0;
};

/// A flat run of parameters of one layer and class: what is reduced, cut into shards and gathered as one. Weights and
/// gradients have it alike.
struct Buffer {
  int layer = 0;
  Class kind = Class::whole;
  std::int64_t at = 0;        ///< first element in the memory of all buffers
  std::int64_t elements = 0;  ///< padded: shards are equal and start at a cache line
  int owner = -1;             ///< data rank that updates the one whole matrix in it (Unit::tensor); -1: cut into shards
  std::vector<Item> items;
};

struct Layout {
  std::vector<Buffer> buffers;
  std::vector<Item> places;   ///< [parameters]: Item::parameter is the number of the buffer here
  std::int64_t elements = 0;  ///< of all buffers
  std::int64_t padding = 0;   ///< elements among them that belong to no parameter
};

/// Pure: a function of the plan, the optimizer's units and the number of ranks, the same on every rank of the data
/// group. Whole matrices go to the rank with the least so far, largest first, equal ones in order of their names.
Layout make_layout(const StatePlan& plan, const Optimizer& optimizer, int ranks);

/// Elements of one shard, or of the whole for a buffer with an owner.
inline std::int64_t shard_of(const Buffer& buffer, int ranks) {
  return buffer.owner >= 0 ? buffer.elements : buffer.elements / ranks;
}

/// Written by more than one call in a micro-batch and perhaps in parts: zeroed at the end of a step and always added
/// to. All others overwrite at their first write in a step.
bool written_in_parts(const Parameter& parameter);

}  // namespace espalier::parallel_zero
