#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace espalier {

/// Philox4x32-10, a counter-based generator: the same key and counter give the same four words everywhere, so random
/// numbers are a function of logical coordinates and no state is saved or kept equal between ranks.
/// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; known answers in tests/unit/core.
using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxCounter = std::array<std::uint32_t, 4>;

constexpr PhiloxCounter philox(PhiloxKey key, PhiloxCounter counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// What a random number is for; part of the key, so that streams never meet.
enum class RandomUse : std::uint32_t { initial_weight = 1, dropout = 2, sampling = 3, synthetic_data = 4 };

/// Mixes seed, use and site (a parameter's or a dropout layer's number) into a key (SplitMix64 finaliser).
constexpr PhiloxKey make_key(std::uint64_t seed, RandomUse use, std::uint64_t site) {
  std::uint64_t z = seed + 0x9E3779B97F4A7C15u * (site * 8 + static_cast<std::uint64_t>(use) + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return {static_cast<std::uint32_t>(z), static_cast<std::uint32_t>(z >> 32)};
}

/// The upper 53 bits of two words, low word first: an integer below 2^53.
constexpr double random_mantissa(std::uint32_t low, std::uint32_t high) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11);
}

/// An FP32 number that rounds to any shorter type as x does: the last bit remembers that something was cut off (round to odd),
/// where a detour over the nearest FP32 number would round twice.
constexpr float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const double error = x - static_cast<double>(nearest);
  const bool finite = nearest - nearest == 0;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (error != 0.0 && finite && bits % 2 == 0) bits += (error > 0) == (nearest > 0) ? 1u : ~0u;
  return std::bit_cast<float>(bits);
}

/// The next smaller number of a floating-point type of 2 or 4 bytes.
template <class T>
constexpr T next_below(T x) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(float), std::uint32_t, std::uint16_t>;
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  const auto bits = std::bit_cast<Bits>(x);
  if (bits == 0 || bits == kSign) return std::bit_cast<T>(static_cast<Bits>(kSign + 1));
  return std::bit_cast<T>(static_cast<Bits>((bits & kSign) != 0 ? bits + 1 : bits - 1));
}

/// A dropout mask as a function of logical coordinates (docs/architecture.md section 8, "Dropout").
/// Element (sample, token, channel) of a hidden dropout has counter {channel / 4, token, sample low, sample high} and uses
/// word channel % 4; attention probability (head, query, key) has {key / 4, query, sample low, sample high ^ head << 8}, word key % 4.
/// An element is kept when its word >= threshold; kept values are multiplied by 1 / (1 - p).
struct Dropout {
  float p = 0.0f;                ///< probability of dropping; 0 switches the whole thing off
  PhiloxKey key{};               ///< make_key(seed, RandomUse::dropout, site)
  std::int64_t first_sample = 0; ///< ordinal in the run of the sample in the first row block
  std::int64_t first_token = 0;  ///< flattened token (sample-in-block * seq + position) of row 0; not 0 under sequence parallelism
  std::int64_t seq = 1;          ///< tokens of one sample
  std::int64_t first_head = 0;   ///< attention only: global number of the rank's first head

  constexpr bool active() const { return p > 0.0f; }
  constexpr std::uint32_t threshold() const { return static_cast<std::uint32_t>(static_cast<double>(p) * 4294967296.0); }
  constexpr float scale() const { return 1.0f / (1.0f - p); }

  constexpr PhiloxCounter hidden_block(std::int64_t row, std::int64_t channel) const {
    const std::int64_t flat = first_token + row;
    const auto sample = static_cast<std::uint64_t>(first_sample + flat / seq);
    return philox(key, {static_cast<std::uint32_t>(channel / 4), static_cast<std::uint32_t>(flat % seq),
                        static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)});
  }
  bool keeps_hidden(std::int64_t row, std::int64_t channel) const {
    return hidden_block(row, channel)[static_cast<std::size_t>(channel % 4)] >= threshold();
  }
  constexpr PhiloxCounter attention_block(std::int64_t sample_in_block, std::int64_t head, std::int64_t query,
                                          std::int64_t key_position) const {
    const auto sample = static_cast<std::uint64_t>(first_sample + sample_in_block);
    return philox(key, {static_cast<std::uint32_t>(key_position / 4), static_cast<std::uint32_t>(query),
                        static_cast<std::uint32_t>(sample),
                        static_cast<std::uint32_t>(sample >> 32) ^ static_cast<std::uint32_t>((first_head + head) << 8)});
  }
  bool keeps_attention(std::int64_t sample_in_block, std::int64_t head, std::int64_t query, std::int64_t key_position) const {
    return attention_block(sample_in_block, head, query, key_position)[static_cast<std::size_t>(key_position % 4)] >=
           threshold();
  }
};

}  // namespace espalier
