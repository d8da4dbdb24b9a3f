#include "scratch.hpp"

#include <algorithm>
#include <bit>

#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {

std::byte* Scratch::bytes(std::size_t n, Stream& lane) {
  constexpr std::size_t kSmallest = std::size_t{1} << 20;
  for (int i = 0; i < kLanes; ++i) {
    if (&device_.lane(static_cast<Lane>(i)) != &lane) continue;
    DeviceMemory& block = blocks_[static_cast<std::size_t>(i)];
    if (block.bytes() < n || !block) {
      device_.wait(lane);  // earlier operations may still use the old block
      block = {};
      block = device_.reserve(std::bit_ceil(std::max(n, kSmallest)), "workspace");
    }
    return block.data();
  }
  ESPALIER_ASSERT(!"a stream that is no lane of the device");
  return nullptr;
}

}  // namespace espalier::kernels_fused::cuda
