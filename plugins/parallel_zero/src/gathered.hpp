#pragma once

#include <span>
#include <vector>

#include "slots.hpp"

namespace espalier::parallel_zero {

/// Stage 3: the whole weights of the layers in use, gathered from the shards into slots before use and given up after.
/// All ranks of the data group acquire in the same order, so their gathers match.
class Gathered {
 public:
  struct Setup {
    const Layout* layout = nullptr;
    Communicator* group = nullptr;
    Device* device = nullptr;
    DType working = DType::f32;
    std::byte* owned = nullptr;              ///< weights this rank owns
    std::span<const std::int64_t> owned_at;  ///< [buffers] first element there
    SlotPlan slots;
    std::byte* memory = nullptr;  ///< slots.elements() of the working type
    int prefetch = 0;             ///< uses gathered ahead
    bool keep = false;            ///< whether a group stays until its slot is needed
  };

  void bind(const Setup& setup);
  /// @param uses  those to come, kept by the caller. Empty: nothing is gathered ahead.
  void begin(std::span<const LayerUse> uses);
  void acquire(int layer, Need need, Stream& stream);
  void release(int layer, Need need);
  /// Memory of an acquired group.
  std::byte* data(int group) const;
  /// The weights have changed: what is gathered is old. Nothing may be in use.
  void drop();

 private:
  struct Slot {
    std::int64_t at = 0;
    int group = -1;
    int users = 0;
    bool ahead = false;           ///< gathered for a use to come
    std::uint64_t last_used = 0;  ///< in uses
  };

  template <class Body>
  void for_each_group(int layer, Need need, Body body) const;
  int find_slot(Pool pool);
  bool start(int group, Stream& stream);
  void finish(int group, Stream& stream);
  void gather_ahead(Stream& stream);
  void forget_uses();
  Slot& slot_of(int group) { return slots_[static_cast<std::size_t>(place_[static_cast<std::size_t>(group)])]; }

  Setup setup_;
  std::vector<Slot> slots_;
  std::vector<int> place_;         ///< [groups] number of the slot, −1: not gathered
  std::vector<Request> requests_;  ///< [buffers]
  std::span<const LayerUse> uses_;
  std::size_t next_ = 0;  ///< of uses_
  std::uint64_t clock_ = 0;
};

}  // namespace espalier::parallel_zero
