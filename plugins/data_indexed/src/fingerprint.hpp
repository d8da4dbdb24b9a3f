#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace espalier::data_indexed {

/// XXH3 (64 bits) over a sequence of values and byte ranges.
class Fingerprint {
 public:
  Fingerprint();
  ~Fingerprint();
  Fingerprint(const Fingerprint&) = delete;
  Fingerprint& operator=(const Fingerprint&) = delete;

  void add_bytes(const void* data, std::size_t bytes);
  void add(std::uint64_t value) { add_bytes(&value, sizeof value); }
  void add(std::string_view text);
  std::uint64_t value() const;
  /// Back to the hash of nothing.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3 of one range.
std::uint64_t checksum(const void* data, std::size_t bytes);

}  // namespace espalier::data_indexed
