#include "gathered.hpp"

#include <algorithm>
#include <utility>

namespace espalier::parallel_zero {

void Gathered::bind(const Setup& setup) {
  setup_ = setup;
  slots_.assign(static_cast<std::size_t>(setup.slots.slots()), {});
  for (std::size_t s = 0; s < slots_.size(); ++s) slots_[s].at = slot_begin(setup.slots, static_cast<int>(s));
  place_.assign(setup.layout->groups.size(), -1);
  requests_.assign(setup.layout->buffers.size(), {});
  uses_ = {};
}

void Gathered::begin(std::span<const LayerUse> uses) {
  forget_uses();
  uses_ = uses;
  next_ = 0;
}

/// What was gathered for uses that do not come is as any other that is not in use.
void Gathered::forget_uses() {
  Stream& lane = setup_.device->lane(Lane::data);
  for (Slot& slot : slots_) {
    if (!slot.ahead) continue;
    finish(slot.group, lane);
    slot.ahead = false;
    if (!setup_.keep) place_[static_cast<std::size_t>(std::exchange(slot.group, -1))] = -1;
  }
  uses_ = {};
}

template <class Body>
void Gathered::for_each_group(int layer, Need need, Body body) const {
  for (const Half half : {Half::input, Half::weight}) {
    const int group = setup_.layout->find(layer, half);
    if (group < 0) continue;
    const bool table = setup_.layout->groups[static_cast<std::size_t>(group)].pool == Pool::tables;
    if (need == Need::all || (need == Need::tables) == table) body(group);
  }
}

void Gathered::acquire(int layer, Need need, Stream& stream) {
  clock_ += 1;
  const bool foreseen = next_ < uses_.size() && uses_[next_].layer == layer && uses_[next_].need == need;
  if (foreseen) next_ += 1;
  if (!foreseen && !uses_.empty()) forget_uses();
  for_each_group(layer, need, [&](int group) {
    const bool placed = place_[static_cast<std::size_t>(group)] >= 0 || start(group, stream);
    ESPALIER_ASSERT(placed);  // every pool has one slot more than are gathered ahead
    Slot& slot = slot_of(group);
    slot.users += 1;
    slot.ahead = false;
    slot.last_used = clock_;
  });
  gather_ahead(stream);
  for_each_group(layer, need, [&](int group) { finish(group, stream); });
}

void Gathered::gather_ahead(Stream& stream) {
  const std::size_t end = std::min(uses_.size(), next_ + static_cast<std::size_t>(setup_.prefetch));
  bool room = true;
  for (std::size_t i = next_; i < end && room; ++i) {
    for_each_group(uses_[i].layer, uses_[i].need, [&](int group) {
      if (!room) return;
      if (place_[static_cast<std::size_t>(group)] < 0) {
        room = start(group, stream);
        if (!room) return;
      } else if (slot_of(group).users > 0) {
        return;  // not given up yet: gathered again if it is by then
      }
      slot_of(group).ahead = true;
    });
  }
}

void Gathered::release(int layer, Need need) {
  for_each_group(layer, need, [&](int group) {
    Slot& slot = slot_of(group);
    slot.users -= 1;
    if (slot.users > 0 || setup_.keep) return;
    slot.group = -1;
    place_[static_cast<std::size_t>(group)] = -1;
  });
}

std::byte* Gathered::data(int group) const {
  const int place = place_[static_cast<std::size_t>(group)];
  ESPALIER_ASSERT(place >= 0);  // weights are there between acquire and release
  return setup_.memory + static_cast<std::size_t>(slots_[static_cast<std::size_t>(place)].at) * size_of(setup_.working);
}

void Gathered::drop() {
  forget_uses();
  for (Slot& slot : slots_) {
    ESPALIER_ASSERT(slot.users == 0);
    if (slot.group >= 0) place_[static_cast<std::size_t>(slot.group)] = -1;
    slot.group = -1;
  }
}

/// A slot that holds nothing, or else the one whose last use is longest ago; −1 where all are in use or waited for.
int Gathered::find_slot(Pool pool) {
  const int first = first_slot(setup_.slots, pool);
  int best = -1;
  for (int s = first; s < first + setup_.slots.count[static_cast<std::size_t>(pool)]; ++s) {
    const Slot& slot = slots_[static_cast<std::size_t>(s)];
    if (slot.users > 0 || slot.ahead) continue;
    if (slot.group < 0) return s;
    if (best < 0 || slot.last_used < slots_[static_cast<std::size_t>(best)].last_used) best = s;
  }
  return best;
}

/// Starts to gather a group; false where there is no slot for it now.
bool Gathered::start(int group, Stream& stream) {
  const BufferGroup& what = setup_.layout->groups[static_cast<std::size_t>(group)];
  const int place = find_slot(what.pool);
  if (place < 0) return false;
  Slot& slot = slots_[static_cast<std::size_t>(place)];
  if (slot.group >= 0) place_[static_cast<std::size_t>(slot.group)] = -1;
  slot.group = group;
  place_[static_cast<std::size_t>(group)] = place;

  Stream& lane = setup_.device->lane(Lane::data);
  setup_.device->order(stream, lane);  // who used the slot before may still be reading it
  const std::size_t element = size_of(setup_.working);
  for (const int b : what.buffers) {
    const Buffer& buffer = setup_.layout->buffers[static_cast<std::size_t>(b)];
    const std::int64_t n = owned_elements(buffer, setup_.group->rank(), setup_.group->size());
    const View own =
        View::vector(setup_.owned + static_cast<std::size_t>(setup_.owned_at[static_cast<std::size_t>(b)]) * element, n,
                     setup_.working);
    const View whole = View::vector(setup_.memory + static_cast<std::size_t>(slot.at + buffer.in_group) * element,
                                    buffer.elements, setup_.working);
    Request& request = requests_[static_cast<std::size_t>(b)];
    if (buffer.owner < 0) {
      request = setup_.group->start_all_gather(own, whole, lane);
    } else {
      if (n > 0) setup_.device->copy(own, whole, lane);
      request = setup_.group->start_broadcast(whole, buffer.owner, lane);
    }
  }
  return true;
}

void Gathered::finish(int group, Stream& stream) {
  Stream& lane = setup_.device->lane(Lane::data);
  for (const int b : setup_.layout->groups[static_cast<std::size_t>(group)].buffers) {
    setup_.group->finish(std::exchange(requests_[static_cast<std::size_t>(b)], {}), lane);
  }
  setup_.device->order(lane, stream);
}

}  // namespace espalier::parallel_zero
