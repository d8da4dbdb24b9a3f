#include "text/tokenizers/word_cache.hpp"

#include <algorithm>

namespace espalier::app {

void WordCache::insert(std::string_view piece, const Key& key, std::span<const std::int32_t> ids) {
  const std::size_t text = piece.size() > 16 ? piece.size() : 0;
  make_room(text, ids.size());
  Slot slot;
  slot.low = key.low;
  slot.high = key.high;
  slot.length = static_cast<std::uint16_t>(key.length);
  slot.count = static_cast<std::uint16_t>(ids.size());
  slot.hash = static_cast<std::uint32_t>(key.hash);
  if (text > 0) {
    slot.text = static_cast<std::uint32_t>(text_.size());
    text_.insert(text_.end(), piece.begin(), piece.end());
  }
  if (ids.size() == 1) {
    slot.first = static_cast<std::uint32_t>(ids[0]);
  } else {
    slot.first = static_cast<std::uint32_t>(ids_.size());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  place(slot);
  ++used_;
}

void WordCache::make_room(std::size_t text, std::size_t ids) {
  const bool crowded = used_ >= slots_.size() / 4 * 3;
  if ((crowded && slots_.size() >= kMostSlots) || text_.size() + text > kMostText || ids_.size() + ids > kMostIds) {
    std::ranges::fill(slots_, Slot{});
    text_.clear();
    ids_.clear();
    used_ = 0;
  } else if (crowded) {
    const std::vector<Slot> old = std::move(slots_);
    slots_ = std::vector<Slot>(old.size() * 4);
    for (const Slot& slot : old) {
      if (slot.count > 0) place(slot);
    }
  }
}

void WordCache::place(const Slot& slot) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = slot.hash & mask;
  while (slots_[at].count > 0) at = (at + 1) & mask;
  slots_[at] = slot;
}

}  // namespace espalier::app
