#include "numpy_random.hpp"

namespace espalier::data_indexed {
namespace {

// Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998), and their mt19937ar.c of 2002 for the seeding.
constexpr std::size_t kMiddle = 397;

std::uint32_t twisted(std::uint32_t upper, std::uint32_t lower) {
  const std::uint32_t joined = (upper & 0x80000000U) | (lower & 0x7fffffffU);
  return (joined >> 1) ^ ((0U - (lower & 1U)) & 0x9908b0dfU);
}

}  // namespace

NumpyRandom::NumpyRandom(std::uint32_t seed) {
  state_[0] = seed;
  for (std::size_t i = 1; i < kState; ++i) {
    state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<std::uint32_t>(i);
  }
}

void NumpyRandom::refill() {
  std::uint32_t* const s = state_.data();
  for (std::size_t i = 0; i < kState - kMiddle; ++i) {
    s[i] = s[i + kMiddle] ^ twisted(s[i], s[i + 1]);
  }
  for (std::size_t i = kState - kMiddle; i < kState - 1; ++i) {
    s[i] = s[i - (kState - kMiddle)] ^ twisted(s[i], s[i + 1]);
  }
  s[kState - 1] = s[kMiddle - 1] ^ twisted(s[kState - 1], s[0]);
  for (std::size_t i = 0; i < kState; ++i) {
    std::uint32_t word = s[i];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680U;
    word ^= (word << 15) & 0xefc60000U;
    word ^= word >> 18;
    words_[i] = word;
  }
  next_ = 0;
}

}  // namespace espalier::data_indexed
