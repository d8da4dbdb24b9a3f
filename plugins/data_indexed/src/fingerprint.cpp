#include "fingerprint.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace espalier::data_indexed {

struct Fingerprint::State {
  XXH3_state_t xxh;
};

Fingerprint::Fingerprint() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }

Fingerprint::~Fingerprint() = default;

void Fingerprint::add_bytes(const void* data, std::size_t bytes) { XXH3_64bits_update(&state_->xxh, data, bytes); }

void Fingerprint::add(std::string_view text) {
  add(static_cast<std::uint64_t>(text.size()));  // so that ("ab", "c") and ("a", "bc") differ
  add_bytes(text.data(), text.size());
}

void Fingerprint::reset() { XXH3_64bits_reset(&state_->xxh); }

std::uint64_t Fingerprint::value() const { return XXH3_64bits_digest(&state_->xxh); }

std::uint64_t checksum(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace espalier::data_indexed
