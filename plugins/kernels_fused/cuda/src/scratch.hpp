#pragma once

#include <cstddef>

#include "espalier/device.hpp"

namespace espalier::kernels_fused::cuda {

/// Device memory that kernels of the compute stream use one after another: what one call left in it is gone with the
/// next call. Grows when more is asked for; the plan asks before the first step, so that no step does.
class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}

  /// @returns n bytes at least, aligned like DeviceMemory. Pointers of earlier calls end.
  std::byte* bytes(std::size_t n) {
    if (memory_.bytes() < n) {
      device_.wait(device_.lane(Lane::compute));  // kernels may still use the old block
      memory_ = DeviceMemory();
      memory_ = device_.reserve(n, "workspace");
    }
    return memory_.data();
  }

 private:
  Device& device_;
  DeviceMemory memory_;
};

}  // namespace espalier::kernels_fused::cuda
