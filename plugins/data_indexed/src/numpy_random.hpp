#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace espalier::data_indexed {

/// numpy's legacy generator, numpy.random.RandomState(seed): MT19937 seeded by one word, draws by masked rejection.
/// Its stream is frozen, so indices made by Megatron years ago come out equal. The words are those of
/// std::mt19937(seed), made 624 at a time in loops that vectorize.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed);

  /// The next 32 bits.
  std::uint32_t word() {
    if (next_ == kState) {
      refill();
    }
    return words_[next_++];
  }

  /// Uniform in [0, maximum]. Above 2^32 - 1 a try takes two words, the high half first. 0 draws nothing.
  std::uint64_t bounded(std::uint64_t maximum) {
    if (maximum == 0) {
      return 0;
    }
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(maximum);
    std::uint64_t value;
    do {
      value = word();
      if (maximum > 0xffffffffU) {
        value = value << 32 | word();
      }
      value &= mask;
    } while (value > maximum);
    return value;
  }

  /// RandomState.shuffle: for i = n-1 down to 1 swaps elements i and bounded(i).
  ///
  /// The partners do not depend on the elements, so a block of them is drawn and prefetched while the one before is
  /// swapped: on arrays larger than the caches the loop would otherwise wait for memory at every swap.
  template <typename T>
  void shuffle(std::span<T> elements) {
    std::array<std::uint64_t, kBlock> partners[2];
    const auto draw_ahead = [&](std::size_t rest, std::array<std::uint64_t, kBlock>& block) {
      const std::size_t count = rest > 1 ? draw(rest - 1, block) : 0;
      for (std::size_t k = 0; k < count; ++k) {
        __builtin_prefetch(&elements[block[k]], 1);
      }
      return count;
    };
    std::size_t i = elements.size();
    std::size_t count = draw_ahead(i, partners[0]);
    for (int at = 0; count > 0; at ^= 1) {
      const std::size_t rest = i - count;
      const std::size_t next = draw_ahead(rest, partners[at ^ 1]);
      for (std::size_t k = 0; k < count; ++k) {
        std::swap(elements[i - 1 - k], elements[partners[at][k]]);
      }
      i = rest;
      count = next;
    }
  }

 private:
  static constexpr std::size_t kState = 624;
  static constexpr std::size_t kBlock = 64;  // more than the memory accesses a core keeps in flight

  /// bounded(maximum), bounded(maximum - 1), …: as many as fill the block or have one mask. Returns how many.
  std::size_t draw(std::uint64_t maximum, std::array<std::uint64_t, kBlock>& values) {
    const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(maximum);
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, maximum - (mask >> 1)));
    if (maximum > 0xffffffffU) {
      for (std::size_t k = 0; k < count; ++k) {
        values[k] = bounded(maximum - k);
      }
      return count;
    }
    // A value that is too large is written over by the next one: whether it is cannot be predicted, so no branch asks.
    for (std::size_t k = 0; k < count;) {
      const std::uint64_t value = word() & mask;
      values[k] = value;
      k += static_cast<std::size_t>(value <= maximum - k);
    }
    return count;
  }

  void refill();

  std::array<std::uint32_t, kState> state_;
  std::array<std::uint32_t, kState> words_;  // the state's output
  std::size_t next_ = kState;
};

}  // namespace espalier::data_indexed
