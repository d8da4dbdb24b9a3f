#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace espalier::app {

/// Merges by pair of ids: open addressing on packed keys, one cache line a look-up as a rule.
class MergeTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Merge {
    std::uint32_t rank = kNone;  ///< place in the file: the smallest goes first; kNone: not a merge
    std::uint32_t id = kNone;    ///< what the pair becomes
  };

  explicit MergeTable(std::size_t merges);

  /// The same pair again replaces what was there.
  void insert(std::uint32_t left, std::uint32_t right, Merge merge);

  Merge find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = pack(left, right);
    std::size_t at = place(key);
    while (slots_[at].key != key) {
      if (slots_[at].key == kEmpty) return {};
      at = (at + 1) & mask_;
    }
    return slots_[at].merge;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // no pair: ids stay below 2^31
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };

  static std::uint64_t pack(std::uint32_t left, std::uint32_t right) { return (std::uint64_t{left} << 32) | right; }
  std::size_t place(std::uint64_t key) const { return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> shift_); }

  std::vector<Slot> slots_;
  std::size_t mask_;
  unsigned shift_;
};

/// Memory that merging needs, kept from piece to piece.
struct MergeScratch {
  struct Symbol {
    std::uint32_t id, previous, next;
    std::uint32_t rank;  ///< of the merge with the next symbol; MergeTable::kNone: there is none
  };
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> queue;
};

/// Byte-pair encoding of one piece: of all neighbours that are a merge, the one of lowest rank and then farthest to the
/// left is merged, until there is none. Thread-safe.
class BytePairEncoder {
 public:
  using ByteIds = std::array<std::int32_t, 256>;

  /// @param bytes  id of each byte; a byte with -1 must not occur in a piece.
  BytePairEncoder(const ByteIds& bytes, MergeTable merges) : bytes_(bytes), merges_(std::move(merges)) {}

  /// Appends the ids of `piece`, in time O(n log n).
  /// @throws IoError for a piece of 4 GiB or more.
  void encode(std::string_view piece, MergeScratch& scratch, std::vector<std::int32_t>& ids) const;

  std::int32_t id_of_byte(unsigned char byte) const { return bytes_[byte]; }

 private:
  void encode_short(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void encode_long(std::string_view piece, MergeScratch& scratch, std::vector<std::int32_t>& ids) const;
  std::uint32_t byte_at(std::string_view piece, std::size_t at) const {
    return static_cast<std::uint32_t>(bytes_[static_cast<unsigned char>(piece[at])]);
  }

  ByteIds bytes_;
  MergeTable merges_;
};

}  // namespace espalier::app
