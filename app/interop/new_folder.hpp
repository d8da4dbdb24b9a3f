#pragma once

#include <cstdint>
#include <filesystem>

namespace espalier::app {

/// A folder that appears under its name by one rename, after all in it is on disk. Until then it has ".tmp" behind its
/// name; without publish() nothing is left.
class NewFolder {
 public:
  /// Makes the temporary folder, after removing what a killed program left of it.
  /// @throws IoError when something else has the name already (an empty folder does not count), or there are fewer than
  /// `bytes` free.
  NewFolder(const std::filesystem::path& target, std::uint64_t bytes);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  void publish();

 private:
  std::filesystem::path target_, temporary_;
  bool published_ = false;
};

/// Free bytes where `folder` is or will be made. @throws IoError with both numbers when there are fewer than `bytes`.
void require_free(const std::filesystem::path& folder, std::uint64_t bytes);

/// Copies a file and syncs the copy. @throws IoError naming both.
void copy_synced(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace espalier::app
