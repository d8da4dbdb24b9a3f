#pragma once
#include <cstdint>
#include <span>

#include "cache.hpp"
#include "index_file.hpp"

namespace espalier::data_indexed {

/// The tokens of samples of one part of one set. Thread-safe; reading allocates nothing.
class SampleReader {
 public:
  /// @param token_limit  ids must be below it; 0: any id goes.
  SampleReader(const IndexedFile& file, IndexArrays arrays, std::int64_t token_limit);

  std::int64_t samples() const { return arrays_.samples(); }
  const IndexArrays& arrays() const { return arrays_; }

  /// Sample `index`, copied piece by piece from the mapped .bin straight to `tokens`.
  /// @param tokens  [seq_length + 1]
  /// @throws IoError if there is no such sample, the arrays do not fit the data, or an id is outside [0, token_limit).
  void read(std::int64_t index, std::span<std::int32_t> tokens) const;

 private:
  [[noreturn]] void fail_token(std::int64_t index, std::span<const std::int32_t> tokens) const;

  const IndexedFile* file_;
  IndexArrays arrays_;
  std::int64_t token_limit_;
};

}  // namespace espalier::data_indexed
