#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/store.hpp"
#include "espalier/communicator.hpp"
#include "espalier/device.hpp"
#include "espalier/optimizer.hpp"

namespace espalier::app {

/// What the snapshot is counted under in Device::memory_use() where it is pinned host memory.
inline constexpr std::string_view kSnapshotMemory = "snapshot";

/// Writes checkpoints: a snapshot of this rank's state, then one data file a rank by a thread, then, when every rank is done, one
/// manifest and the rename that publishes it. The thread never communicates; the training thread polls and publishes.
class CheckpointWriter {
 public:
  struct Settings {
    std::filesystem::path folder;
    std::int64_t keep = 0;  ///< newest kept, 0: all
    bool async = true;      ///< false: start() returns when this rank's file is on disk, and no snapshot is taken
    bool saves = true;      ///< false: start() is never called, and no memory is reserved for it
  };

  /// Reserves the snapshot: training waits while it is taken, so of a device it goes to pinned memory, at the speed of the
  /// bus; where none is left, to other memory, with a warning. The pieces' views stay valid for the life of this object.
  /// @param parameters  what StatePiece::parameter counts in.
  /// @param specs  the optimizer's: which state is one number for a tensor, or for the whole model.
  CheckpointWriter(const Settings& settings, Communicator& world, Device& device, std::span<const LocalParameter> parameters,
                   std::vector<StatePiece> pieces, std::span<const StateSpec> specs = {});
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Bytes this rank writes, and of all ranks.
  std::uint64_t own_bytes() const { return own_bytes_; }
  std::uint64_t world_bytes() const { return world_bytes_; }

  /// Starts a save. Collective: makes the folder (first rank), takes the snapshot. `manifest.tensors` is left empty by the caller.
  /// @throws AgreedError, on every rank alike, when there is no room.
  void start(Manifest manifest, Stream& stream);
  /// Between start and publish.
  bool in_flight() const { return manifest_.has_value(); }
  /// Whether this rank's file is written (or has failed). Local; to be agreed by the caller before publish().
  bool written() const { return done_.load(std::memory_order_acquire); }
  /// Collective, after every rank has written: gathers the slices and publishes. Returns the checkpoint's folder.
  /// @throws AgreedError when writing failed on any rank; the older checkpoints are untouched.
  std::filesystem::path publish();

 private:
  struct Segment {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t slice = 0;  ///< position in tensors_
  };
  void plan();
  void reserve_snapshot();
  void take_snapshot(Stream& stream);
  void write_file() noexcept;
  void write_segments(int file, const std::string& path);

  Settings settings_;
  CheckpointStore store_;
  Communicator& world_;
  Device& device_;
  std::vector<LocalParameter> places_;  ///< of pieces_: what each is a part of
  std::vector<StatePiece> pieces_;

  std::vector<StoredTensor> tensors_;  ///< one slice each: what this rank writes
  std::vector<Segment> segments_;
  DeviceMemory pinned_;
  std::unique_ptr<std::byte[]> pageable_;
  std::byte* snapshot_ = nullptr;  ///< in one of the two
  std::uint64_t own_bytes_ = 0, world_bytes_ = 0;

  std::optional<Manifest> manifest_;
  std::string problem_;  ///< of the writing thread; read after done_
  int problem_code_ = 0;
  std::atomic<bool> done_{true};
  std::thread thread_;
};

}  // namespace espalier::app
