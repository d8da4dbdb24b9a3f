#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "espalier/device.hpp"
#include "graphs.hpp"
#include "stream.hpp"

namespace espalier::kernels_fused::cuda {

class Staging;

/// What is known of one GPU, for logs and `trainer doctor`.
struct GpuFacts {
  int index = 0;
  int count = 0;             ///< GPUs this process sees
  std::string name;          ///< "NVIDIA H200"
  int major = 0, minor = 0;  ///< compute capability
  std::size_t bytes = 0;     ///< of memory
  std::string bus;           ///< PCI address
  int peers = 0;             ///< other GPUs whose memory it reaches directly (NVLink or PCI)
  int driver = 0;            ///< newest CUDA version the driver knows: 13000
  int runtime = 0;           ///< CUDA version of the plugin's runtime
};

/// One GPU: memory by cudaMalloc, a stream a lane, events for order. Copies to and from pageable host memory go through
/// pinned memory of our own while they fit, so that they neither wait for the device nor read a buffer that the caller
/// may already have changed. Errors of work that ran earlier show at a later call, which names itself: option
/// `synchronous` names the culprit.
class CudaDevice final : public Device {
 public:
  /// @param index  which of the GPUs that this process sees; -1: by the rank on this host.
  /// @throws DeviceError when there is no GPU or none for this rank, ConfigError when none has that index.
  explicit CudaDevice(int index);
  ~CudaDevice() override;

  std::string_view name() const override { return name_; }
  bool host_accessible() const override { return false; }
  DeviceMemory reserve(std::size_t bytes, std::string_view purpose) override;
  DeviceMemory reserve_near_host(std::size_t bytes, std::string_view purpose) override;
  Stream& lane(Lane lane) override { return *lanes_[static_cast<std::size_t>(lane)]; }
  void order(Stream& first, Stream& then) override;
  void copy(const View& from, const View& to, Stream& stream) override;
  void fill_zero(const View& view, Stream& stream) override;
  void wait(Stream& stream) override;
  std::vector<MemoryUse> memory_use() const override { return use_; }

  const GpuFacts& facts() const { return facts_; }
  /// Has `poll` called again and again while the host waits: it may throw, which ends the wait.
  void while_waiting(void (*poll)()) { poll_ = poll; }

  /// From now on work of the compute lane is kept back and sent as CUDA graphs where it repeats.
  void use_graphs(Graphs::Log log, Graphs::Limits limits = {});
  /// Sends what is kept, and keeps nothing any more. Before anything goes that work refers to.
  void stop_graphs() noexcept;
  /// Null without.
  const Graphs* graphs() const { return graphs_.get(); }

 protected:
  void release(void* data, std::size_t bytes) noexcept override;

 private:
  struct Block {
    std::size_t purpose;  ///< position in use_
    bool pinned;
  };

  /// The compute lane has to be told when it is about to be seen in another way than by its handle.
  void send();
  DeviceMemory count(void* data, std::size_t bytes, std::string_view purpose, bool pinned);

  GpuFacts facts_;
  std::string name_;
  std::array<std::unique_ptr<CudaStream>, kLanes> lanes_;
  std::array<cudaEvent_t, 32> events_{};
  std::size_t next_event_ = 0;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Graphs> graphs_;
  void (*poll_)() = nullptr;
  std::vector<MemoryUse> use_;
  std::map<void*, Block> blocks_;
};

}  // namespace espalier::kernels_fused::cuda
