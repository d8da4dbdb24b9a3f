#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "element_type.hpp"
#include "mapped_file.hpp"

namespace espalier::data_indexed {

/// The tokens of one sequence where they lie in the .bin: `count` elements of `type`, little-endian, not aligned.
/// `mapping` keeps the bytes readable after the IndexedFile is gone.
struct TokenView {
  std::shared_ptr<const MappedFile> mapping;
  const std::byte* data;
  std::int64_t count;
  ElementType type;
};

/// A pair PREFIX.bin, PREFIX.idx of Megatron's memory-mapped dataset, version 1, checked whole when it is opened.
///
/// Layout of the .idx (little-endian, nothing padded): magic "MMIDIDX\0\0", u64 version 1, u8 type code, u64 n, u64 d,
/// i32 sizes[n] (tokens), i64 pointers[n] (bytes), i64 document_index[d], then perhaps i8 modes[n] (multimodal datasets
/// of Megatron-LM core), which training ignores.
///
/// Thread-safe: nothing changes after open().
class IndexedFile {
 public:
  /// Maps and checks the pair. Reads the whole .idx (about 1 GB/s per 80 million sequences) but not the .bin.
  /// @param prefix  the path without ".idx" and ".bin".
  /// @param stamp   a file of write_stamp(). Where it is of these very files, they were checked before, and only header
  /// and
  ///         lengths are looked at; else, and without a stamp, all is read. "": none.
  /// @throws ConfigError if `prefix` is a folder or carries the extension; IoError, naming the file with expected and
  ///         actual sizes, if a file of the pair is missing, cut, damaged, or of another format.
  static IndexedFile open(const std::string& prefix, const std::string& stamp = {});

  /// Remembers in `path` that this pair was checked whole. Does nothing (and says so) while the .idx is younger than
  /// two seconds, since a change within the resolution of its times could not be seen.
  /// @throws IoError if the file cannot be written.
  bool write_stamp(const std::string& path) const;
  /// Whether open() read the whole .idx: false where a stamp spared it.
  bool read_whole() const { return read_whole_; }

  const std::string& prefix() const { return prefix_; }
  ElementType type() const { return type_; }
  /// Sequences (sentences, or whole documents where the preprocessing did not split): the unit of splits and shuffles.
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return static_cast<std::int64_t>(document_entries_) - 1; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t index_bytes() const { return static_cast<std::int64_t>(index_->size_bytes()); }

  /// Tokens of sequence `i`, 0 <= i < sequences(), not checked.
  std::int32_t size(std::int64_t i) const { return load<std::int32_t>(sizes_, i); }
  /// All sizes as they lie in the file: i32[sequences()], not aligned.
  const std::byte* sizes() const { return sizes_; }
  /// Byte offset of sequence `i` in the .bin, not checked.
  std::int64_t pointer(std::int64_t i) const { return load<std::int64_t>(pointers_, i); }
  /// First sequence of document `k`, 0 <= k <= documents(), not checked.
  std::int64_t document_begin(std::int64_t k) const { return load<std::int64_t>(documents_, k); }
  /// Whether the file has modes. A file without sequences counts as one that has none.
  bool has_modes() const { return modes_ != nullptr; }
  /// Mode of sequence `i`; only where has_modes().
  std::int8_t mode(std::int64_t i) const { return load<std::int8_t>(modes_, i); }
  /// Sum of the sizes of the sequences [begin, end).
  std::int64_t tokens_in(std::int64_t begin, std::int64_t end) const;

  /// Tokens [offset, offset + target.size()) of sequence `i`, widened to int32. Allocates nothing.
  /// @throws IoError if the range leaves the sequence, the file holds floats, or an int64 token does not fit.
  void read(std::int64_t i, std::int64_t offset, std::span<std::int32_t> target) const;
  /// The same for any integer type without loss.
  void read(std::int64_t i, std::int64_t offset, std::span<std::int64_t> target) const;
  /// The same for floats (and integers up to 2^53).
  void read(std::int64_t i, std::int64_t offset, std::span<double> target) const;

  /// @throws IoError if there is no sequence `i`.
  TokenView view(std::int64_t i) const;

  /// XXH3 over header, sizes and length of the .bin: changes when the data are replaced by others of the same file
  /// size.
  std::uint64_t fingerprint() const { return fingerprint_; }

  /// What was accepted but looks wrong, one line with the full path each: stray bytes behind the last token, a last
  /// document that was never closed.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  IndexedFile() = default;

  template <typename T>
  static T load(const std::byte* base, std::int64_t i) {
    T value;  // the arrays start at odd offsets
    std::memcpy(&value, base + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  void check_header();
  void check_lengths();
  void check_document_index();
  void check_sizes_and_pointers();
  bool take_from_stamp(const std::string& path);
  std::string stamp_text() const;
  void warn_of_open_document();
  void check_data_length();
  const std::byte* range(std::int64_t i, std::int64_t offset, std::int64_t count) const;
  template <typename To>
  void read_as(std::int64_t i, std::int64_t offset, std::span<To> target) const;

  std::string prefix_;
  std::shared_ptr<const MappedFile> index_;
  std::shared_ptr<const MappedFile> data_;
  ElementType type_ = ElementType::int32;
  std::int64_t sequences_ = 0;
  std::uint64_t document_entries_ = 0;
  std::int64_t tokens_ = 0;
  std::uint64_t fingerprint_ = 0;
  const std::byte* sizes_ = nullptr;      // i32[sequences]
  const std::byte* pointers_ = nullptr;   // i64[sequences]
  const std::byte* documents_ = nullptr;  // i64[document entries]
  const std::byte* modes_ = nullptr;      // i8[sequences], or none
  bool read_whole_ = true;
  std::vector<std::string> warnings_;
};

/// "documents" where one sequence is one document, the word users know; else "sequences".
const char* unit_of(const IndexedFile& file);

/// Bytes of an .idx before the sizes.
inline constexpr std::int64_t kIndexHeaderBytes = 34;
/// "MMIDIDX" and two zero bytes.
inline constexpr char kIndexMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr std::uint64_t kIndexVersion = 1;

}  // namespace espalier::data_indexed
