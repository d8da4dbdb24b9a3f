#pragma once
#include <cstdint>
#include <espalier/dataset.hpp>
#include <espalier/host.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "options.hpp"
#include "sample_set.hpp"

namespace espalier::data_indexed {

/// Blends of Megatron .bin/.idx pairs with bigscience's or core's order of samples.
///
/// Creation is collective over the world: rank 0 checks the pairs and builds missing indices, then the first rank of
/// each host those its disk still lacks, then all ranks map them; a failure on one rank is thrown on all.
class IndexedDataset : public Dataset {
 public:
  /// @param before_rename  see StoreOptions.
  IndexedDataset(const ConfigView& config, HostContext& host, std::function<void()> before_rename = {});

  std::span<const SampleSet> sets() const override { return sample_sets_; }
  std::int64_t sample_tokens() const override { return seq_length_ + 1; }
  void read(int set, std::int64_t index, std::span<std::int32_t> tokens,
            std::span<std::uint8_t> loss_mask) const override;
  SampleOrigin origin(int set, std::int64_t index) const override;
  /// Data, borders, seed, weights and epochs of the training plans; neither paths nor the validation settings, and not
  /// the number of samples unless it changes the order.
  std::uint64_t fingerprint() const override { return fingerprints_.back(); }
  bool continues(std::uint64_t fingerprint, std::int64_t samples) const override;

 private:
  struct Opener;

  void plan(const DataOptions& options, const RunFacts& facts, HostContext& host, Opener& opener);
  void add_set(const SetOptions& set, const DataOptions& options, const std::vector<SequenceRange>& ranges,
               const RunFacts& facts, HostContext& host, Opener& opener);
  void warn_of_overlap(HostContext& host) const;
  void ensure_indices(HostContext& host, const std::function<void()>& before_rename) const;
  void map(const RunFacts& facts);
  BlendedSet::Location locate(int set, std::int64_t index) const;

  std::int64_t seq_length_ = 0;
  bool main_rank_ = true;
  std::vector<std::unique_ptr<IndexedFile>> files_;
  std::vector<std::int64_t> plan_ends_;      // of the training plans
  std::vector<BlendedSet> sets_;             // the first plan of the training set, then the held-out sets
  std::vector<BlendedSet> further_plans_;    // of the training set
  std::vector<SampleSet> sample_sets_;       // of sets_
  std::vector<std::uint64_t> fingerprints_;  // of the training order up to each plan's end
};

}  // namespace espalier::data_indexed
