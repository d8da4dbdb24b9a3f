// A device of which the host sees nothing before it has waited.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "queues.hpp"

namespace espalier::remote {

class RemoteStream final : public Stream {
 public:
  explicit RemoteStream(int queue) : queue_(queue) {}
  int queue() const { return queue_; }

 private:
  int queue_;
};

/// @throws DeviceError when the stream is not of this device: memory of the host has communicators of its own.
int queue_of(const Stream& stream);

class RemoteDevice final : public Device {
 public:
  explicit RemoteDevice(std::uint64_t seed);
  ~RemoteDevice() override;

  std::string_view name() const override { return "remote:0"; }
  bool host_accessible() const override { return false; }
  DeviceMemory reserve(std::size_t bytes, std::string_view purpose) override;
  Stream& lane(Lane lane) override { return *lanes_[static_cast<std::size_t>(lane)]; }
  void order(Stream& first, Stream& then) override;
  /// Also finds a host buffer that changed before its copy was done, and spoils one that is read too early.
  void copy(const View& from, const View& to, Stream& stream) override;
  void fill_zero(const View& view, Stream& stream) override;
  void wait(Stream& stream) override;
  std::vector<MemoryUse> memory_use() const override { return memory_.use(); }

  Queues& queues() { return queues_; }
  std::int64_t waits() const { return waits_; }

 private:
  void release(void* data, std::size_t bytes) noexcept override;

  Memory memory_;
  Queues queues_;
  std::unique_ptr<Device> host_;
  std::array<std::unique_ptr<RemoteStream>, kLanes> lanes_;
  std::int64_t waits_ = 0;
};

}  // namespace espalier::remote
