#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace espalier::data_indexed {

/// A whole file mapped read-only. The mapping lives as long as the last shared_ptr to it, so whoever hands out a
/// pointer into it hands out a share of it too.
///
/// The size is that of the opened descriptor: checks against it are checks against what can be read. A file that
/// another process cuts afterwards ends the run with SIGBUS, as with every mapping.
class MappedFile {
 public:
  /// @throws IoError if the file cannot be opened, is not a regular file or cannot be mapped. A file of 0 bytes gives
  ///         an empty mapping.
  static std::shared_ptr<const MappedFile> open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }
  const std::string& path() const { return path_; }
  /// Length, inode and times of the opened file as text: another one after anything was written to it, also when the
  /// old modification time was put back. The same on all hosts of a shared disk.
  const std::string& identity() const { return identity_; }
  /// Whether the kernel may read on around a page that is touched. It does from the start, by megabytes on many disks;
  /// without, a touch reads its page alone.
  void read_ahead(bool wanted) const;
  /// Begins to read bytes [offset, offset + bytes) at once, which lie in the file.
  void fetch(std::size_t offset, std::size_t bytes) const;
  /// Takes the pages that were read so far out of this process; they are mapped again where they are touched.
  void forget() const;
  /// When it was last changed, in seconds since 1970.
  std::int64_t changed_seconds() const { return changed_seconds_; }

 private:
  MappedFile(std::string path, const std::byte* data, std::size_t size_bytes)
      : path_(std::move(path)), data_(data), size_bytes_(size_bytes) {}

  std::string path_;
  const std::byte* data_;
  std::size_t size_bytes_;
  std::string identity_;
  std::int64_t changed_seconds_ = 0;
};

}  // namespace espalier::data_indexed
