#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "espalier/device.hpp"

namespace espalier::app {

/// A range of the arena between its opening and its last use.
struct Slot {
  std::size_t offset = 0;
  std::size_t bytes = 0;  ///< 0: closed
  bool is_open() const { return bytes != 0; }
};

/// The memory of activations, gradients of activations and messages of one rank. First fit, so the same sequence of
/// openings and closings gives the same offsets: a dry walk of the instruction lists, without memory, tells the size
/// (peak_bytes) and the number of ranges (peak_slots); after reserve() a step makes no heap call.
class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;
  /// Where addresses without memory behind them start: not null, so that arithmetic on them is like any other.
  static constexpr std::uintptr_t kDryAddress = std::uintptr_t{1} << 16;

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Memory for `bytes` and bookkeeping for `slots`. Without it the arena is dry: it hands out addresses that nobody
  /// may touch.
  /// @throws DeviceError when the device has not enough.
  void reserve(Device& device, std::size_t bytes, std::size_t slots);

  /// Opening what does not fit in a reserved arena is our own bug (a walk that was not planned).
  Slot open(std::size_t bytes);
  /// Closes and clears; closing a closed slot does nothing.
  void close(Slot& slot);
  std::byte* data(const Slot& slot) const {
    const auto base = capacity_ == 0 ? kDryAddress : reinterpret_cast<std::uintptr_t>(memory_.data());
    return reinterpret_cast<std::byte*>(base + slot.offset);
  }

  bool empty() const { return live_.empty(); }
  std::size_t peak_bytes() const { return peak_bytes_; }
  std::size_t peak_slots() const { return peak_slots_; }
  std::size_t capacity() const { return capacity_; }

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  std::vector<Range> live_;  // ascending by begin
  DeviceMemory memory_;
  std::size_t capacity_ = 0;  // 0: dry
  std::size_t slot_capacity_ = 0;
  std::size_t peak_bytes_ = 0;
  std::size_t peak_slots_ = 0;
};

/// Rounds up to the arena's alignment.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

/// A slot that closes at the end of its scope.
class Temporary {
 public:
  explicit Temporary(Arena& arena) : arena_(&arena) {}
  Temporary(Arena& arena, std::size_t bytes) : arena_(&arena), slot_(arena.open(bytes)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() { arena_->close(slot_); }

  void open(std::size_t bytes) { slot_ = arena_->open(bytes); }
  std::byte* data() const { return arena_->data(slot_); }
  View matrix(std::int64_t rows, std::int64_t cols, DType dtype) const {
    return View::matrix(data(), rows, cols, dtype);
  }

 private:
  Arena* arena_;
  Slot slot_;
};

}  // namespace espalier::app
