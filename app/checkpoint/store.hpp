#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::app {

/// The folder that holds a run's checkpoints: `step_N/` each, and `latest`, a text file naming the newest one. A checkpoint appears by
/// one rename after everything in it is on disk; what is being written has a name that ends in `.tmp`.
class CheckpointStore {
 public:
  /// Room for the manifest and for file system overhead.
  static constexpr std::uint64_t kSpareBytes = 1 << 20;

  explicit CheckpointStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  static std::string name_of(std::int64_t step) { return "step_" + std::to_string(step); }
  std::filesystem::path temporary(std::int64_t step) const { return folder_ / (name_of(step) + ".tmp"); }

  /// Steps of the complete checkpoints here, ascending.
  std::vector<std::int64_t> steps() const;

  struct Found {
    std::filesystem::path path;
    std::string note;  ///< something a person should know: `latest` was damaged, leftovers of a killed save
  };
  /// The newest complete checkpoint: what `latest` names, or, when `latest` is missing, empty or names nothing, the highest step.
  /// Nothing when there is no checkpoint at all.
  /// @throws IoError when `latest` names a checkpoint and none is here: starting anew would overwrite what may only be misplaced.
  std::optional<Found> newest() const;

  /// Makes an empty temporary folder, after removing leftovers of that name.
  void begin(std::int64_t step) const;
  /// @throws IoError with path, bytes needed and free when the file system cannot hold them.
  void require_space(std::uint64_t bytes) const;
  /// Makes the folder and looks whether a checkpoint of so many bytes of state can be written there. @throws IoError as require_space().
  void require_room(std::uint64_t bytes) const;
  /// Renames, syncs the folder, moves `latest`, then removes the oldest beyond `keep` (0: none).
  void publish(std::int64_t step, std::int64_t keep) const;

 private:
  void remove_old(std::int64_t published, std::int64_t keep) const;
  std::filesystem::path folder_;
};

/// The checkpoint a user means by `folder`: itself, the newest in it, or the newest of the run whose folder it is.
/// @throws IoError when there is none.
CheckpointStore::Found find_checkpoint(const std::string& folder);

/// Writes a whole small file and syncs it.
void write_synced(const std::filesystem::path& path, std::string_view text);
void sync_folder(const std::filesystem::path& path);

}  // namespace espalier::app
