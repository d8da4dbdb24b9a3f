#include "model/arena.hpp"

#include <algorithm>

#include "espalier/error.hpp"

namespace espalier::app {

void Arena::reserve(Device& device, std::size_t bytes, std::size_t slots) {
  ESPALIER_ASSERT(live_.empty());
  capacity_ = std::max(bytes, kAlignment);
  slot_capacity_ = slots;
  live_.reserve(slots);
  memory_ = DeviceMemory();
  memory_ = device.reserve(capacity_, "activations");
}

Slot Arena::open(std::size_t bytes) {
  const std::size_t size = std::max(aligned(bytes), kAlignment);
  std::size_t begin = 0;
  auto at = live_.begin();
  while (at != live_.end() && at->begin - begin < size) {
    begin = at->end;
    ++at;
  }
  ESPALIER_ASSERT(capacity_ == 0 || (begin + size <= capacity_ && live_.size() < slot_capacity_));
  live_.insert(at, {begin, begin + size});
  peak_bytes_ = std::max(peak_bytes_, begin + size);
  peak_slots_ = std::max(peak_slots_, live_.size());
  return {begin, size};
}

void Arena::close(Slot& slot) {
  if (!slot.is_open()) return;
  const auto at = std::lower_bound(live_.begin(), live_.end(), slot.offset,
                                   [](const Range& range, std::size_t offset) { return range.begin < offset; });
  ESPALIER_ASSERT(at != live_.end() && at->begin == slot.offset);
  live_.erase(at);
  slot = {};
}

}  // namespace espalier::app
