#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "numpy_random.hpp"
#include "splits.hpp"

namespace espalier::data_indexed {

/// How a split is read in samples: whose rules, and Megatron-LM core's switches, which bigscience does not have.
struct SampleRules {
  Sampling sampling = Sampling::bigscience;
  bool extra_token = true;    // X = 1: a sample is S + 1 tokens and shares one with the next; else S tokens
  bool keep_partial = false;  // a last sample that is short counts, too, and is padded
  bool operator==(const SampleRules&) const = default;
};

/// How often a split is read to give the samples wanted. A sample is `seq_length` + X tokens.
struct EpochPlan {
  std::int64_t tokens_per_epoch;     // T
  std::int64_t seq_length;           // S
  std::int64_t samples_wanted;       // N
  std::int64_t epochs;               // E: smallest number >= 1 with E*T >= N*S + X
  std::int64_t samples;              // B = (E*T - X) / S: all that E epochs give; rounded up to keep a partial one
  std::int64_t samples_before_last;  // A = ((E-1)*T - X) / S; B when the last epoch is not separated
  bool separate_last_epoch;          // too little of the last epoch is needed: it is shuffled on its own
  SampleRules rules;

  /// Tokens of a sample in the data: S + X.
  std::int64_t sample_tokens() const { return seq_length + (rules.extra_token ? 1 : 0); }
};

/// @param tokens_per_epoch  > 0: the caller refuses empty splits with a message that names them.
/// @throws ConfigError if E*T or N*S leaves 64 bits.
EpochPlan plan_epochs(std::int64_t tokens_per_epoch, std::int64_t samples_wanted, std::int64_t seq_length,
                      const SampleRules& rules = {});

/// Order of the sequences: the split's numbers E times over, shuffled together; a separated last epoch apart.
/// int32 as in both Megatrons. @throws ConfigError above 2^31 - 1 sequences in the file.
std::vector<std::int32_t> build_document_index(const EpochPlan& plan, const SequenceRange& range, NumpyRandom& random);

/// Order of the samples: 0..B-1 shuffled, a separated last epoch apart. uint32, or int64 from B = 2^32 - 2 on.
using ShuffleIndex = std::variant<std::vector<std::uint32_t>, std::vector<std::int64_t>>;
ShuffleIndex build_shuffle_index(const EpochPlan& plan, NumpyRandom& random);

/// Where each sample starts: B + 1 rows (position in the document index, token offset in that sequence), the last one
/// the end. Without the extra token a row is the place just behind the sample before it, so its offset may be the size
/// of the sequence. int32 as bigscience has it; int64 where positions would pass 2^31 - 1, as core has it.
using SampleIndex = std::variant<std::vector<std::int32_t>, std::vector<std::int64_t>>;

/// 32 or 64, decided before anything is built: 32 while `document_entries` positions fit it.
int sample_index_bits(std::int64_t document_entries);

/// One pass over the document index; rows as described at SampleIndex.
/// @param sizes           i32 per sequence of the file, not aligned (IndexedFile::sizes()).
/// @param sequences       their number: a document index that names another sequence is refused.
/// @param name            the file, for errors.
/// @param first_position  added to every position.
/// @throws IoError if the sequences named by the index hold fewer tokens than the plan counts on.
SampleIndex build_sample_index(const EpochPlan& plan, std::span<const std::int32_t> document_index,
                               const std::byte* sizes, std::int64_t sequences, std::string_view name, int bits,
                               std::int64_t first_position = 0);

}  // namespace espalier::data_indexed
