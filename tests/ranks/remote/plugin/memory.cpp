#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "espalier/error.hpp"

namespace espalier::remote {
namespace {

constexpr std::size_t kRegion = std::size_t{1} << 34;  // addresses, not memory
constexpr std::size_t kPage = 4096;
constexpr int kPoison = 0xFF;  // NaN in every floating type

}  // namespace

Memory::Memory() {
  void* const region = ::mmap(nullptr, kRegion, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) throw DeviceError(std::string("remote: cannot map memory: ") + std::strerror(errno));
  base_ = static_cast<std::byte*>(region);
}

Memory::~Memory() { ::munmap(base_, kRegion); }

/// The first gap that is large enough.
std::size_t Memory::place(std::size_t bytes) const {
  std::size_t at = 0;
  for (const auto& [offset, block] : blocks_) {
    if (offset - at >= bytes) return at;
    at = offset + block.bytes;
  }
  return at;
}

void* Memory::reserve(std::size_t bytes, std::string_view purpose) {
  const std::size_t whole = std::max<std::size_t>((bytes + kPage - 1) / kPage, 1) * kPage;
  const std::size_t at = place(whole);
  if (at + whole > kRegion) {
    throw DeviceError("remote: " + std::string(purpose) + ": no room for " + std::to_string(bytes) + " bytes");
  }
  const auto known =
      std::find_if(use_.begin(), use_.end(), [&](const MemoryUse& use) { return use.purpose == purpose; });
  const auto index = static_cast<std::size_t>(known - use_.begin());
  if (known == use_.end()) use_.push_back({std::string(purpose)});
  use_[index].bytes += whole;
  use_[index].peak = std::max(use_[index].peak, use_[index].bytes);
  blocks_[at] = {whole, index};
  end_ = std::max(end_, at + whole);
  const Access access(*this);
  std::memset(base_ + at, 0, whole);
  return base_ + at;
}

void Memory::release(void* data) noexcept {
  const auto found = blocks_.find(static_cast<std::size_t>(static_cast<std::byte*>(data) - base_));
  if (found == blocks_.end()) return;
  {
    const Access access(*this);
    std::memset(data, kPoison, found->second.bytes);
  }
  use_[found->second.purpose].bytes -= found->second.bytes;
  blocks_.erase(found);
}

bool Memory::holds(const void* data) const {
  const auto* const at = static_cast<const std::byte*>(data);
  return at >= base_ && at < base_ + kRegion;
}

void Memory::enter() {
  if (depth_++ == 0 && end_ > 0) ::mprotect(base_, end_, PROT_READ | PROT_WRITE);
}

void Memory::leave() noexcept {
  if (--depth_ == 0 && end_ > 0) ::mprotect(base_, end_, PROT_NONE);
}

}  // namespace espalier::remote
