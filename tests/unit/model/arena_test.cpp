#include "model/arena.hpp"

#include <gtest/gtest.h>

namespace espalier::app {
namespace {

TEST(Arena, OpensFirstFitAligned) {
  Arena arena;
  Slot a = arena.open(100), b = arena.open(1), c = arena.open(64);
  EXPECT_EQ(a.offset, 0u);
  EXPECT_EQ(b.offset, 128u);
  EXPECT_EQ(c.offset, 192u);
  arena.close(a);
  EXPECT_FALSE(a.is_open());
  Slot d = arena.open(129);  // too big for the gap
  EXPECT_EQ(d.offset, 256u);
  Slot e = arena.open(128);
  EXPECT_EQ(e.offset, 0u);
  EXPECT_EQ(arena.peak_bytes(), 256u + 192u);
  EXPECT_EQ(arena.peak_slots(), 4u);
  for (Slot* slot : {&b, &c, &d, &e}) arena.close(*slot);
  EXPECT_TRUE(arena.empty());
}

TEST(Arena, ClosingTwiceDoesNothing) {
  Arena arena;
  Slot slot = arena.open(8);
  arena.close(slot);
  arena.close(slot);
  EXPECT_TRUE(arena.empty());
}

TEST(Arena, AnEmptySlotIsStillASlot) {
  Arena arena;
  Slot slot = arena.open(0);
  EXPECT_TRUE(slot.is_open());
  arena.close(slot);
}

TEST(Arena, TheSameOpeningsGiveTheSameAddressesInMemory) {
  Arena dry;
  Slot a = dry.open(1000), b = dry.open(64);
  const auto device = make_cpu_device();
  Arena real;
  real.reserve(*device, dry.peak_bytes(), dry.peak_slots());
  Slot c = real.open(1000), d = real.open(64);
  EXPECT_EQ(c.offset, a.offset);
  EXPECT_EQ(d.offset, b.offset);
  EXPECT_EQ(real.data(d) - real.data(c), static_cast<std::ptrdiff_t>(b.offset - a.offset));
  *real.data(d) = std::byte{1};
}

TEST(ArenaDeathTest, WhatWasNotPlannedIsOurOwnBug) {
  const auto device = make_cpu_device();
  Arena arena;
  arena.reserve(*device, 128, 2);
  Slot slot = arena.open(128);
  EXPECT_DEATH(arena.open(1), "capacity");
  arena.close(slot);
}

TEST(Arena, TemporariesCloseWithTheirScope) {
  Arena arena;
  {
    const Temporary memory(arena, 64);
    Temporary later(arena);
    later.open(64);
    EXPECT_FALSE(arena.empty());
  }
  EXPECT_TRUE(arena.empty());
}

}  // namespace
}  // namespace espalier::app
