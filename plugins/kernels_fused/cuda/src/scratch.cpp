#include "scratch.hpp"

#include <algorithm>
#include <bit>

#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {

DeviceMemory& Scratch::block(Stream& lane) {
  for (int i = 0; i < kLanes; ++i) {
    if (&device_.lane(static_cast<Lane>(i)) == &lane) return blocks_[static_cast<std::size_t>(i)];
  }
  ESPALIER_ASSERT(!"a stream that is no lane of the device");
  return blocks_.front();
}

void Scratch::reserve(std::size_t n, Stream& lane) {
  DeviceMemory& own = block(lane);
  if (n == 0 || (own && own.bytes() >= n)) return;
  device_.wait(lane);  // earlier operations may still use the old block
  own = {};
  own = device_.reserve(n, "workspace");
}

std::byte* Scratch::bytes(std::size_t n, Stream& lane) {
  constexpr std::size_t kSmallest = std::size_t{1} << 20;
  const DeviceMemory& own = block(lane);
  // What nobody announced may grow step by step: by powers of two it grows seldom.
  if (!own || own.bytes() < n) reserve(std::bit_ceil(std::max(n, kSmallest)), lane);
  return own.data();
}

}  // namespace espalier::kernels_fused::cuda
