#pragma once
#include <cstdint>
#include <espalier/dataset.hpp>
#include <optional>
#include <string>
#include <vector>

#include "blend_cache.hpp"
#include "cache.hpp"
#include "fingerprint.hpp"
#include "options.hpp"
#include "sample_reader.hpp"

namespace espalier::data_indexed {

/// One range of one pair in a set.
struct SetPart {
  PartOptions options;
  const IndexedFile* file;
  double normalised_weight;  // of the blend; where weights are left out it follows from the lengths, in map()
  IndexRequest request;
  std::optional<SampleReader> reader;
};

/// A set and the order in which its parts give its samples: one part, a blend by weights, or (when every sample is
/// wanted once) one part after another. Planned from the options, then its arrays are built or found, then mapped.
class BlendedSet {
 public:
  /// What a set is made from, besides its options.
  struct Request {
    std::vector<const IndexedFile*> files;  // of each part of the options
    std::vector<SequenceRange> ranges;      // likewise
    std::int64_t wanted;                    // samples; 0: each once
    std::int64_t seq_length;
    std::uint32_t seed;
  };

  BlendedSet(const SetOptions& set, const DataOptions& options, const Request& request);

  /// What is wrong when a part is shorter than `needed` tokens, "" otherwise.
  std::string too_short(std::int64_t needed) const;

  /// The order, where it is known before the arrays are and is worth keeping in files; null otherwise.
  const BlendRequest* blend_request() const { return weighted_ && blend_.cached() ? &blend_ : nullptr; }

  /// Maps the arrays of every part and makes the order.
  /// @throws IoError if an array cannot be used, ConfigError if the order takes more of a part than it was built with.
  void map(std::int64_t token_limit);

  const std::string& name() const { return name_; }
  Split split() const { return split_; }
  Sampling sampling() const { return sampling_; }
  std::int64_t wanted() const { return wanted_; }
  const std::vector<SetPart>& parts() const { return parts_; }
  bool blended() const { return order_.has_value(); }
  /// Samples that can be read; after map().
  std::int64_t samples() const { return samples_; }

  struct Location {
    const SetPart* part;
    std::int64_t sample;  // of the part
  };
  /// 0 <= index < samples(), not checked.
  Location locate(std::int64_t index) const;

  /// Adds data, ranges, weights, epochs and seeds: all that the order follows from, but for the number of samples where
  /// that does not change it.
  void add_to(Fingerprint& hash) const;

 private:
  std::vector<std::int64_t> samples_of_parts(const std::vector<double>& weights);
  void make_order();

  std::string name_;
  Split split_;
  Sampling sampling_;
  bool weighted_;
  std::int64_t wanted_;
  std::int32_t pad_id_;
  std::vector<SetPart> parts_;
  BlendRequest blend_;                // of several parts with weights and samples wanted
  std::int64_t positions_ = 0;        // of the blend
  std::optional<BlendOrder> order_;   // of several parts with samples wanted
  std::vector<std::int64_t> starts_;  // else: number of the first sample of each part
  std::int64_t samples_ = 0;
};

}  // namespace espalier::data_indexed
