#pragma once
#include <cstdint>
#include <espalier/dataset.hpp>
#include <espalier/host.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "blend.hpp"
#include "cache.hpp"
#include "options.hpp"
#include "sample_reader.hpp"

namespace espalier::data_indexed {

/// Blends of Megatron .bin/.idx pairs with bigscience's order of samples.
///
/// Creation is collective over the world: rank 0 builds missing indices, then the first rank of each host those its
/// disk still lacks, then all ranks map them; a failure on one rank is thrown on all.
class IndexedDataset : public Dataset {
 public:
  /// @param before_rename  see store_index.
  IndexedDataset(const ConfigView& config, HostContext& host, std::function<void()> before_rename = {});

  std::span<const SampleSet> sets() const override { return sample_sets_; }
  std::int64_t sample_tokens() const override { return seq_length_ + 1; }
  void read(int set, std::int64_t index, std::span<std::int32_t> tokens,
            std::span<std::uint8_t> loss_mask) const override;
  SampleOrigin origin(int set, std::int64_t index) const override;
  /// Data, borders, seed, weights and epochs of the training set; neither paths nor the validation settings, and not
  /// the number of samples unless it changes the order.
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  struct Part {
    PartOptions options;
    const IndexedFile* file;
    double normalised_weight;
    IndexRequest request;
    std::optional<SampleReader> reader;
  };
  struct Set {
    std::string name;
    Split split;
    std::int64_t wanted;  // samples; 0: one epoch, each sample once
    std::vector<Part> parts;
    std::optional<BlendOrder> order;   // of several parts with samples wanted
    std::vector<std::int64_t> starts;  // else: number of the first sample of each part, one part after another
  };
  struct Location {
    const Part* part;
    std::int64_t sample;
  };

  void plan_sets(const DataOptions& options, const RunFacts& facts, HostContext& host);
  void add_set(const SetOptions& options, const std::vector<SequenceRange>& ranges, const DataOptions& all,
               const RunFacts& facts, HostContext& host);
  const IndexedFile& file(const std::string& prefix, HostContext& host);
  void warn_of_overlap(HostContext& host) const;
  void ensure_indices(HostContext& host, const std::function<void()>& before_rename) const;
  void map_indices(const RunFacts& facts);
  void log_table(HostContext& host) const;
  Location locate(int set, std::int64_t index) const;

  std::int64_t seq_length_ = 0;
  bool main_rank_ = true;
  std::vector<std::unique_ptr<IndexedFile>> files_;
  std::vector<Set> sets_;
  std::vector<SampleSet> sample_sets_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace espalier::data_indexed
