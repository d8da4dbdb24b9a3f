#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/export.hpp"
#include "espalier/tensor.hpp"

namespace espalier {

/// An in-order queue of work on a device. On the CPU work runs at once and the queue is always empty.
/// Backends derive from it; nobody else looks inside.
class ESPALIER_API Stream {
 public:
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream();

 protected:
  Stream() = default;
};

/// The queues a rank has: one for computing and one for each kind of communication, so that they can overlap.
enum class Lane : std::uint8_t { compute, tensor, data, pipeline, copy };
inline constexpr int kLanes = 5;

class Device;

/// Owned device memory, 64-byte aligned at least, filled with zeros. Move-only; gives its bytes back when it goes.
class ESPALIER_API DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device* device, void* data, std::size_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Bytes reserved for one purpose ("weights", "gradients", "optimizer", "activations", …).
struct MemoryUse {
  std::string purpose;
  std::size_t bytes = 0;  ///< now
  std::size_t peak = 0;   ///< the most at any time
};

/// Memory, queues and copies of one kind of device. One object a rank; used by the training thread only.
class ESPALIER_API Device {
 public:
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device();

  /// "cpu", "cuda:0": for messages.
  virtual std::string_view name() const = 0;
  /// Whether the host may read and write device pointers directly.
  virtual bool host_accessible() const = 0;
  /// Reserves memory. Meant for the time before the first step; a request of `generate` may also do it.
  /// @param purpose  counted in memory_use() under this name.
  /// @throws DeviceError naming purpose, bytes asked, and bytes free where that is known.
  virtual DeviceMemory reserve(std::size_t bytes, std::string_view purpose) = 0;
  /// The same near the host: pinned memory that kernels of this device reach over the bus, for what is touched once a step
  /// (optimizer state). Where host and device share memory it is reserve(); other devices override it or refuse.
  /// @throws DeviceError likewise, also where there is no such memory.
  virtual DeviceMemory reserve_near_host(std::size_t bytes, std::string_view purpose);
  virtual Stream& lane(Lane lane) = 0;
  /// Work put on `then` later waits for what is on `first` now: an event, no host wait.
  virtual void order(Stream& first, Stream& then) = 0;
  /// Copies elements; shapes equal, dtypes equal, either side host or device. Asynchronous on the stream.
  virtual void copy(const View& from, const View& to, Stream& stream) = 0;
  virtual void fill_zero(const View& view, Stream& stream) = 0;
  /// The only call that makes the host wait.
  virtual void wait(Stream& stream) = 0;
  /// Bytes in use, by purpose, in order of first use.
  virtual std::vector<MemoryUse> memory_use() const = 0;

 protected:
  Device() = default;
  friend class DeviceMemory;
  virtual void release(void* data, std::size_t bytes) noexcept = 0;
};

/// The CPU as a device: aligned host memory (huge pages where the kernel gives them), streams that are always empty.
ESPALIER_API std::unique_ptr<Device> make_cpu_device();

}  // namespace espalier
