#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace espalier::app {

enum class Packing : std::uint8_t { none, gzip, zstd };

/// Where bytes of text come from, one after another.
class ByteSource {
 public:
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  virtual ~ByteSource() = default;

  /// Reads at most `bytes`, at least one; 0 at the end. @throws IoError naming the file and the byte of it.
  virtual std::size_t read(char* to, std::size_t bytes) = 0;
  /// Bytes of the file (packed ones, where it is) that have been read so far.
  virtual std::int64_t file_bytes() const = 0;

 protected:
  ByteSource() = default;
};

/// How a regular file is packed, by its first bytes. @throws IoError when its name says .gz or .zst and its bytes do
/// not.
Packing packing_of(const std::filesystem::path& file);

/// A file from an offset on, as it is.
std::unique_ptr<ByteSource> open_plain(const std::filesystem::path& file, std::int64_t offset = 0);

/// A file or pipe, unpacked on the way (gzip with any number of members, zstd with any number of frames). Memory does
/// not depend on its size. @throws IoError, later, when it is damaged or ends within a member or frame.
std::unique_ptr<ByteSource> open_unpacked(const std::filesystem::path& file);

/// The name without .gz or .zst.
std::filesystem::path unpacked_name(const std::filesystem::path& file);

/// Absolute, without dots: what messages show.
std::string full_path(const std::filesystem::path& file);

}  // namespace espalier::app
