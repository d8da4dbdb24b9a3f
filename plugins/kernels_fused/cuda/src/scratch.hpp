#pragma once

#include <array>
#include <cstddef>

#include "espalier/device.hpp"

namespace espalier::kernels_fused::cuda {

/// Device memory that one operation needs for itself: partial sums, packed operands. One block a lane, so that
/// operations on different lanes never share one; within a lane operations follow each other, so they all may. What a
/// run announces is reserved before its first step (Backend::prepare); an operation that needs more, such as decoding
/// at a new length, waits for its lane and makes the block grow.
class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}

  /// Makes the lane's block at least `n` bytes long; waits for the lane where it grows. Nothing happens for 0.
  void reserve(std::size_t n, Stream& lane);

  /// At least `n` bytes, aligned to 256, with any contents, for one operation on the lane: the next call for the same
  /// lane may return the same memory or free it, so an operation calls this once and cuts what it gets.
  /// @param lane  a lane of the device.
  std::byte* bytes(std::size_t n, Stream& lane);
  /// The same on the compute lane.
  std::byte* bytes(std::size_t n) { return bytes(n, device_.lane(Lane::compute)); }

 private:
  DeviceMemory& block(Stream& lane);

  Device& device_;
  std::array<DeviceMemory, kLanes> blocks_;
};

}  // namespace espalier::kernels_fused::cuda
