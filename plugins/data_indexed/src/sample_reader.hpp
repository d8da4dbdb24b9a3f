#pragma once
#include <cstdint>
#include <espalier/dataset.hpp>
#include <span>
#include <vector>

#include "cache.hpp"
#include "index_file.hpp"

namespace espalier::data_indexed {

/// The tokens of samples of one part of one set. Thread-safe; reading allocates nothing.
class SampleReader {
 public:
  /// @param token_limit  ids must be below it; 0: any id goes.
  /// @param pad_id  core's pad id: where it stands in the data it becomes 0 and no target; -1: none.
  SampleReader(const IndexedFile& file, IndexArrays arrays, std::int64_t token_limit, std::int32_t pad_id = -1);

  std::int64_t samples() const { return arrays_.samples(); }
  const IndexArrays& arrays() const { return arrays_; }

  /// Sample `index`, copied piece by piece from the mapped .bin straight to `tokens`. What a sample lacks to
  /// seq_length + 1 tokens is 0 and no target.
  /// @param tokens     [seq_length + 1]
  /// @param loss_mask  [seq_length] or empty; set to 0 where a target does not count.
  /// @throws IoError if there is no such sample, the arrays do not fit the data, or an id is outside [0, token_limit).
  void read(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::uint8_t> loss_mask = {}) const;

  /// The pieces of sample `index` in their order; one of an empty sequence has a count of 0.
  std::vector<SamplePiece> pieces(std::int64_t index) const;

 private:
  /// Calls visit(sequence, offset, count, tokens so far) for each piece; returns the tokens of the sample.
  template <typename Visit>
  std::int64_t walk(std::int64_t index, const Visit& visit) const;
  [[noreturn]] void fail_token(std::int64_t index, std::span<const std::int32_t> tokens) const;

  const IndexedFile* file_;
  IndexArrays arrays_;
  std::int64_t token_limit_;
  std::int32_t pad_id_;
};

}  // namespace espalier::data_indexed
