#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace espalier::app {

/// The ids of pieces seen before. Text repeats its words: nine of ten pieces are found here. Bounded (about 20 MB):
/// when it is full it starts anew, which keeps what is frequent now. Not thread-safe: each thread has its own.
class WordCache {
 public:
  static constexpr std::size_t kLongest = 128;  ///< bytes; longer pieces are rarely seen again

  WordCache() : slots_(kFirstSlots) {}

  /// What find needs of a piece, made once for find and insert.
  struct Key {
    std::uint64_t low = 0, high = 0, hash = 0;  // up to 16 bytes: the bytes themselves
    std::uint32_t length = 0;
  };
  static Key key_of(std::string_view piece) {
    Key key;
    key.length = static_cast<std::uint32_t>(piece.size());
    const char* at = piece.data();
    if (piece.size() >= 8) {
      key.low = load<std::uint64_t>(at);
      key.high = load<std::uint64_t>(at + piece.size() - 8);
      // The middle of a longer one only spreads the hash: the bytes are compared.
      for (std::size_t k = 8; k + 8 < piece.size() && piece.size() > 16; k += 8) {
        key.low = mix(key.low, load<std::uint64_t>(at + k) ^ kFirst);
      }
    } else if (piece.size() >= 4) {
      key.low = load<std::uint32_t>(at) | (std::uint64_t{load<std::uint32_t>(at + piece.size() - 4)} << 32);
    } else {
      for (std::size_t k = 0; k < piece.size(); ++k) {
        key.low |= std::uint64_t{static_cast<unsigned char>(at[k])} << (8 * k);
      }
    }
    key.hash = mix(key.low ^ kFirst, key.high ^ (kSecond + key.length));
    return key;
  }

  /// Appends the ids of the piece if they are known.
  bool find(std::string_view piece, const Key& key, std::vector<std::int32_t>& ids) const {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = key.hash & mask;; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.count == 0) return false;
      if (slot.low != key.low || slot.high != key.high || slot.length != key.length) continue;
      if (key.length > 16 && std::memcmp(text_.data() + slot.text, piece.data(), piece.size()) != 0) continue;
      if (slot.count == 1) {
        ids.push_back(static_cast<std::int32_t>(slot.first));
      } else {
        const auto* first = ids_.data() + slot.first;
        ids.insert(ids.end(), first, first + slot.count);
      }
      return true;
    }
  }

  /// @param key  of a piece that find did not find.
  /// @param ids  at least one, fewer than 65,536.
  void insert(std::string_view piece, const Key& key, std::span<const std::int32_t> ids);

 private:
  static constexpr std::size_t kFirstSlots = std::size_t{1} << 10;
  static constexpr std::size_t kMostSlots = std::size_t{1} << 18;  // 8 MB
  static constexpr std::size_t kMostText = std::size_t{1} << 22;
  static constexpr std::size_t kMostIds = std::size_t{1} << 21;
  static constexpr std::uint64_t kFirst = 0x2D358DCCAA6C78A5u, kSecond = 0x8BB84B93962EACC9u;  // wyhash's

  struct Slot {
    std::uint64_t low = 0, high = 0;
    std::uint32_t text = 0;    ///< where the bytes of a piece of more than 16 are
    std::uint32_t first = 0;   ///< the id itself when there is one, else where they are
    std::uint16_t length = 0;  ///< bytes
    std::uint16_t count = 0;   ///< ids; 0: free
    std::uint32_t hash = 0;    ///< lower half: growing needs no look at the text
  };

  template <class Number>
  static Number load(const char* at) {
    Number number;
    std::memcpy(&number, at, sizeof(number));
    return number;
  }
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  void make_room(std::size_t text, std::size_t ids);
  void place(const Slot& slot);

  std::vector<Slot> slots_;
  std::vector<char> text_;
  std::vector<std::int32_t> ids_;
  std::size_t used_ = 0;
};

}  // namespace espalier::app
