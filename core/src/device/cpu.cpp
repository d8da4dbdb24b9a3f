// The CPU as a device: host memory, and streams on which everything has already happened.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <unordered_map>

#include "espalier/device.hpp"
#include "espalier/error.hpp"

namespace espalier {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector register
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kMapFrom = 2 * kHugePage;  // below it, rounding up to huge pages would waste too much

class CpuStream final : public Stream {};

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// What the kernel thinks can still be had without swapping; 0 when it does not say.
std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::size_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

class CpuDevice final : public Device {
 public:
  std::string_view name() const override { return "cpu"; }
  bool host_accessible() const override { return true; }

  DeviceMemory reserve(std::size_t bytes, std::string_view purpose) override {
    if (bytes == 0) return {};
    void* data = allocate(bytes);
    if (data == nullptr) refuse(bytes, purpose);
    const std::size_t index = find_purpose(purpose);
    use_[index].bytes += bytes;
    use_[index].peak = std::max(use_[index].peak, use_[index].bytes);
    blocks_[data] = index;
    return {this, data, bytes};
  }

  Stream& lane(Lane lane) override { return lanes_[static_cast<std::size_t>(lane)]; }
  void order(Stream&, Stream&) override {}
  void wait(Stream&) override {}

  void copy(const View& from, const View& to, Stream&) override {
    ESPALIER_ASSERT(from.rows == to.rows && from.cols == to.cols && from.dtype == to.dtype);
    if (from.empty() || from.data == to.data) return;
    if (from.contiguous() && to.contiguous()) {
      std::memmove(to.data, from.data, from.bytes());
      return;
    }
    const std::size_t row_bytes = static_cast<std::size_t>(from.cols) * size_of(from.dtype);
    for (std::int64_t r = 0; r < from.rows; ++r) std::memmove(to.at(r, 0), from.at(r, 0), row_bytes);
  }

  void fill_zero(const View& view, Stream&) override {
    if (view.empty()) return;
    if (view.contiguous()) {
      std::memset(view.data, 0, view.bytes());
      return;
    }
    const std::size_t row_bytes = static_cast<std::size_t>(view.cols) * size_of(view.dtype);
    for (std::int64_t r = 0; r < view.rows; ++r) std::memset(view.at(r, 0), 0, row_bytes);
  }

  std::vector<MemoryUse> memory_use() const override { return use_; }

 protected:
  void release(void* data, std::size_t bytes) noexcept override {
    const auto block = blocks_.find(data);
    ESPALIER_ASSERT(block != blocks_.end());
    use_[block->second].bytes -= bytes;
    blocks_.erase(block);
    if (bytes >= kMapFrom) {
      munmap(data, round_up(bytes, kHugePage));
    } else {
      std::free(data);
    }
  }

 private:
  static void* allocate(std::size_t bytes) {
    if (bytes < kMapFrom) {
      void* data = std::aligned_alloc(kAlignment, round_up(bytes, kAlignment));
      if (data != nullptr) std::memset(data, 0, bytes);
      return data;
    }
    // The kernel promises memory it does not have and kills the process when it is touched: ask before.
    const std::size_t available = available_bytes();
    if (available != 0 && bytes > available) return nullptr;
    const std::size_t mapped = round_up(bytes, kHugePage);
    void* raw = mmap(nullptr, mapped + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    // Huge pages need a 2 MiB border: cut what stands out on both sides.
    auto* begin = static_cast<std::byte*>(raw);
    auto* aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::size_t>(begin), kHugePage));
    const auto head = static_cast<std::size_t>(aligned - begin);
    if (head != 0) munmap(begin, head);
    if (head != kHugePage) munmap(aligned + mapped, kHugePage - head);
    madvise(aligned, mapped, MADV_HUGEPAGE);
    // Touched now, so that the pages exist before the first step and a shortage shows at start.
    std::memset(aligned, 0, mapped);
    return aligned;
  }

  [[noreturn]] void refuse(std::size_t bytes, std::string_view purpose) const {
    std::size_t used = 0;
    for (const MemoryUse& use : use_) used += use.bytes;
    throw DeviceError("cpu: cannot reserve " + std::to_string(bytes) + " bytes for " + std::string(purpose) + ": " +
                      std::to_string(available_bytes()) + " bytes are free and " + std::to_string(used) +
                      " are in use by this rank; use a smaller model or micro-batch, or more ranks");
  }

  std::size_t find_purpose(std::string_view purpose) {
    const auto found =
        std::find_if(use_.begin(), use_.end(), [&](const MemoryUse& use) { return use.purpose == purpose; });
    if (found != use_.end()) return static_cast<std::size_t>(found - use_.begin());
    use_.push_back({std::string(purpose), 0, 0});
    return use_.size() - 1;
  }

  std::array<CpuStream, kLanes> lanes_;
  std::vector<MemoryUse> use_;
  std::unordered_map<void*, std::size_t> blocks_;  // block → position in use_
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace espalier
