#include "slots.hpp"

#include <algorithm>

namespace espalier::parallel_zero {

SlotPlan plan_slots(const Layout& layout, int vectors_and_blocks) {
  SlotPlan plan;
  for (const Pool pool : {Pool::vectors, Pool::blocks, Pool::tables}) {
    const auto p = static_cast<std::size_t>(pool);
    plan.count[p] = std::min(pool == Pool::tables ? 1 : vectors_and_blocks, layout.count(pool));
    plan.size[p] = layout.largest(pool);
  }
  return plan;
}

int first_slot(const SlotPlan& plan, Pool pool) {
  int slot = 0;
  for (std::size_t p = 0; p < static_cast<std::size_t>(pool); ++p) slot += plan.count[p];
  return slot;
}

std::int64_t slot_begin(const SlotPlan& plan, int slot) {
  std::int64_t at = 0;
  for (std::size_t p = 0; p < kPools; ++p) {
    if (slot < plan.count[p]) return at + slot * plan.size[p];
    slot -= plan.count[p];
    at += plan.count[p] * plan.size[p];
  }
  return at;
}

}  // namespace espalier::parallel_zero
