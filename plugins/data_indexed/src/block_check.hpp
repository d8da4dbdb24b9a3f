#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fingerprint.hpp"
#include "mapped_file.hpp"

namespace espalier::data_indexed {

/// A file is checked in blocks of this size: a block that is touched for the first time costs one pass over it.
inline constexpr std::size_t kCheckBlock = std::size_t{1} << 20;

/// 16 hexadecimal digits.
std::string hexadecimal(std::uint64_t value);

/// `text`, which ends its lines, with a last line that holds its hash; and back, empty when the file is missing or the
/// hash another, with the reason in `why`.
std::string sealed(std::string text);
std::optional<std::string> read_sealed_text(const std::string& path, std::string& why);

/// XXH3 of each block of what is written to a file.
class BlockHasher {
 public:
  void add(const void* data, std::size_t bytes);
  /// Hashes of all blocks, the last one perhaps shorter. Call once.
  std::vector<std::uint64_t> finish();
  std::int64_t bytes() const { return bytes_; }

 private:
  Fingerprint block_;
  std::size_t filled_ = 0;  // bytes in block_
  std::int64_t bytes_ = 0;
  std::vector<std::uint64_t> hashes_;
};

/// What lies beside a cached array (ARRAY.npy.check, text): what it was made from, its length, the hash of each block,
/// and a hash of all that.
struct BlockCheck {
  std::string settings;  // lines "key = value"
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> blocks;

  std::string to_text() const;
  /// Empty, with the reason in `why`, when the file is missing or not whole.
  static std::optional<BlockCheck> read(const std::string& path, std::string& why);
  /// The value of a line of the settings, "" without it.
  std::string setting(std::string_view key) const;
};

/// A mapped file whose blocks are compared with their hashes when they are touched first. Thread-safe.
class CheckedFile {
 public:
  /// @param check_path  removed when a block is found damaged, so that the next start builds the file anew.
  CheckedFile(std::shared_ptr<const MappedFile> mapping, BlockCheck check, std::string check_path);

  /// Must come before the first read at `place`, which lies in the mapping and does not cross a block's border.
  /// @throws IoError if its block is damaged.
  void touch(const void* place) const {
    const auto block = static_cast<std::size_t>(static_cast<const std::byte*>(place) - mapping_->data()) / kCheckBlock;
    if (!good_[block].load(std::memory_order_relaxed)) {
      check_block(block);
    }
  }
  /// Every block. @throws IoError naming the first damaged one.
  void check_all() const;

 private:
  void check_block(std::size_t block) const;

  std::shared_ptr<const MappedFile> mapping_;
  BlockCheck check_;
  std::string check_path_;
  std::unique_ptr<std::atomic<bool>[]> good_;
};

}  // namespace espalier::data_indexed
