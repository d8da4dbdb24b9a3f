#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "espalier/parallel/data.hpp"

namespace espalier::parallel_zero {

/// Classes of a layer's parameters: each has a buffer of its own, because each is summed over other ranks.
enum class Class : std::uint8_t { split, whole, partial, tied };

/// Groups that take turns in the same memory where gradients or weights are sharded: vectors of all layers, matrices of
/// blocks, and tables (embeddings, untied head), which are far larger than those of small models' blocks.
enum class Pool : std::uint8_t { vectors, blocks, tables };
inline constexpr std::size_t kPools = 3;

/// A parameter's place in its buffer.
struct Item {
  int parameter = 0;
  std::int64_t begin = 0;  ///< element of the buffer
  std::int64_t elements = 0;
};

/// A flat run of parameters of one layer, half and class: what is reduced, cut into shards and gathered as one. Weights
/// and gradients have it alike.
struct Buffer {
  Class kind = Class::whole;
  int group = 0;
  std::int64_t in_group = 0;  ///< first element in the memory of its group
  std::int64_t at = 0;        ///< first element in the memory of all buffers
  std::int64_t elements = 0;  ///< padded: shards are equal and start at a cache line
  int owner = -1;             ///< data rank that updates the one whole matrix in it (Unit::tensor); -1: cut into shards
  /// Where that matrix is split over the tensor group: the tensor rank, of data rank `owner`, that has its state and
  /// updates all of it; -1: each tensor rank updates what it has.
  int tensor_owner = -1;
  std::int64_t logical = 0;  ///< elements of that matrix in all, padded to a cache line; 0 where it is not split
  std::vector<Item> items;
};

/// The buffers of one half of one layer: their gradients are complete at the same time, their weights needed at the
/// same time.
struct BufferGroup {
  int layer = 0;
  Half half = Half::input;
  Pool pool = Pool::vectors;
  std::int64_t elements = 0;
  std::vector<int> buffers;
};

struct Layout {
  std::vector<Buffer> buffers;
  std::vector<BufferGroup> groups;
  std::vector<Item> places;   ///< [parameters]: Item::parameter is the number of the buffer here
  std::int64_t elements = 0;  ///< of all buffers
  std::int64_t padding = 0;   ///< elements among them that belong to no parameter

  /// Number of the group, -1 where this rank has none.
  int find(int layer, Half half) const;
  /// Elements of the largest group of a pool, and how many groups it has.
  std::int64_t largest(Pool pool) const;
  int count(Pool pool) const;

  std::vector<std::array<int, 2>> by_layer;  ///< [layers][halves] numbers of groups
};

/// Pure: a function of the plan, the optimizer's units and the number of ranks, the same on every rank of the data and
/// tensor groups and at every stage. Whole matrices go to the rank with the least so far, largest first, equal ones in
/// order of their names.
/// @param ranks, tensors  sizes of the data and tensor groups.
Layout make_layout(const StatePlan& plan, const Optimizer& optimizer, int ranks, int tensors = 1);

/// Elements of one shard, also of a buffer with an owner.
inline std::int64_t shard_of(const Buffer& buffer, int ranks) { return buffer.elements / ranks; }

/// Elements of what `rank` owns of a buffer: its shard, or everything or nothing.
inline std::int64_t owned_elements(const Buffer& buffer, int rank, int ranks) {
  if (buffer.owner < 0) return shard_of(buffer, ranks);
  return buffer.owner == rank ? buffer.elements : 0;
}

/// Written by more than one call in a micro-batch and perhaps in parts: zeroed first and always added to. All others
/// overwrite at their first write.
bool written_in_parts(const Parameter& parameter);

}  // namespace espalier::parallel_zero
