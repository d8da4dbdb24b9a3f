#pragma once

#include <array>

#include "layout.hpp"

namespace espalier::parallel_zero {

/// Memory in which the groups of a pool take turns: some slots of the size of the largest group.
struct SlotPlan {
  std::array<int, kPools> count{};
  std::array<std::int64_t, kPools> size{};  ///< elements

  std::int64_t elements() const {
    std::int64_t n = 0;
    for (std::size_t pool = 0; pool < kPools; ++pool) n += count[pool] * size[pool];
    return n;
  }
  int slots() const { return count[0] + count[1] + count[2]; }
};

/// @param vectors_and_blocks  slots of these two pools; tables have one. No pool gets more than it has groups.
SlotPlan plan_slots(const Layout& layout, int vectors_and_blocks);

/// First slot of a pool in the numbering over all pools, and first element of a slot.
int first_slot(const SlotPlan& plan, Pool pool);
std::int64_t slot_begin(const SlotPlan& plan, int slot);

}  // namespace espalier::parallel_zero
