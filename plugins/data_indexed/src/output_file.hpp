#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier::data_indexed {

/// A file written under a temporary name in its own folder (".NAME.tmp.HOST.PID.COUNT") that appears under its true
/// name in one step. Destroyed before that, it leaves nothing. It is locked (flock) while it has its temporary name.
class OutputFile {
 public:
  /// @throws IoError if the folder is missing or not writable.
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  const std::string& path() const { return path_; }
  const std::string& temporary_path() const { return temporary_path_; }
  /// Bytes so far, buffered ones included.
  std::int64_t bytes() const { return bytes_; }

  /// Appends; may buffer. @throws IoError on a full disk and the like.
  void write(const void* data, std::size_t bytes);
  /// Appends the first `bytes` of another file; holes in it stay holes.
  void append_file(const std::string& path, std::int64_t bytes);

  /// Writes out what is buffered.
  void finish() { flush(); }
  /// Writes out what is buffered and waits until it is on disk.
  void sync();
  /// Gives the (synced or finished) file its true name. Replaces an older file; readers that mapped that one keep it.
  void rename_into_place();

  /// Gives the file up: closes and removes the temporary one. Safe to call twice.
  void discard() noexcept;

 private:
  void flush();
  void write_out(const std::byte* data, std::size_t bytes);

  std::string path_;
  std::string temporary_path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
};

/// Removes what killed processes left in a folder: temporary files made on this host whose process is gone and that no
/// process holds. What other hosts, or file systems without locks, leave there stays.
void remove_abandoned_files(const std::string& folder);

/// Makes the renames done in the folder of `path` durable.
void sync_folder_of(const std::string& path);

}  // namespace espalier::data_indexed
