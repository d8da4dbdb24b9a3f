#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace espalier::data_indexed {

/// numpy's legacy generator, numpy.random.RandomState(seed): MT19937 seeded by one word, draws by masked rejection.
/// Its stream is frozen, so indices made by Megatron years ago come out equal.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed) : words_(seed) {}

  /// The next 32 bits.
  std::uint32_t word() { return static_cast<std::uint32_t>(words_()); }

  /// Uniform in [0, maximum]. Above 2^32 - 1 a try takes two words, the high half first. 0 draws nothing.
  std::uint64_t bounded(std::uint64_t maximum) {
    if (maximum == 0) {
      return 0;
    }
    std::uint64_t mask = maximum;
    for (int shift = 1; shift < 64; shift *= 2) {
      mask |= mask >> shift;
    }
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
  /// The partners do not depend on the elements, so a block of them is drawn ahead and prefetched: on arrays larger
  /// than the caches the loop would otherwise wait for memory at every swap.
  template <typename T>
  void shuffle(std::span<T> elements) {
    constexpr std::size_t kBlock = 64;  // more than the memory accesses a core keeps in flight
    std::array<std::size_t, kBlock> partners;
    std::size_t i = elements.size();
    while (i > 1) {
      const std::size_t count = std::min(kBlock, i - 1);
      for (std::size_t k = 0; k < count; ++k) {
        partners[k] = static_cast<std::size_t>(bounded(i - 1 - k));
        __builtin_prefetch(&elements[partners[k]], 1);
      }
      for (std::size_t k = 0; k < count; ++k) {
        std::swap(elements[i - 1 - k], elements[partners[k]]);
      }
      i -= count;
    }
  }

 private:
  std::mt19937 words_;
};

}  // namespace espalier::data_indexed
