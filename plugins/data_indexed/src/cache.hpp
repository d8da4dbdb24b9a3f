#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "index_file.hpp"
#include "sample_index.hpp"
#include "splits.hpp"

namespace espalier::data_indexed {

/// What the three index arrays of one part of one split follow from.
struct IndexRequest {
  const IndexedFile* file;
  std::string folder;  // of the cache files; empty: beside the data
  std::string name;    // "train", "valid", "test", or the name of an explicit set
  SequenceRange range;
  std::int64_t samples_wanted;
  std::int64_t seq_length;
  std::uint32_t seed;
};

/// The cache files of a request, named as bigscience names them, and ours beside them:
/// PREFIX_NAME_indexmap_{N}ns_{S}sl_{SEED}s_{doc_idx,sample_idx,shuffle_idx}.npy and …_check.txt. In a folder of their
/// own a hash of the data's path follows the prefix.
struct CacheFiles {
  std::string document;
  std::string sample;
  std::string shuffle;
  /// What the arrays were made from, with the checksum of each: bigscience's names leave out the split, the data and
  /// whether a file is whole, so stale or cut arrays would be used without a word.
  std::string check;
};
CacheFiles cache_files(const IndexRequest& request);

/// The mapped arrays. Copies share the mappings.
class IndexArrays {
 public:
  struct Place {
    std::int64_t position;  // in the document index
    std::int64_t offset;    // tokens
  };

  const EpochPlan& plan() const { return plan_; }
  /// Samples that can be read: B of the plan.
  std::int64_t samples() const { return plan_.samples; }
  /// Sequence at a position of the document index.
  std::int64_t sequence(std::int64_t position) const { return document_[position]; }
  /// Where row `row` of the sample index points, 0 <= row <= samples().
  Place place(std::int64_t row) const {
    return sample32_ != nullptr ? Place{sample32_[2 * row], sample32_[2 * row + 1]}
                                : Place{sample64_[2 * row], sample64_[2 * row + 1]};
  }
  /// Row of sample `index`, 0 <= index < samples().
  std::int64_t shuffled(std::int64_t index) const {
    return shuffle32_ != nullptr ? std::int64_t{shuffle32_[index]} : shuffle64_[index];
  }
  std::int64_t document_entries() const { return document_entries_; }

 private:
  friend IndexArrays load_index(const IndexRequest& request);

  EpochPlan plan_{};
  std::int64_t document_entries_ = 0;
  const std::int32_t* document_ = nullptr;
  const std::int32_t* sample32_ = nullptr;  // one of each pair is set
  const std::int64_t* sample64_ = nullptr;
  const std::uint32_t* shuffle32_ = nullptr;
  const std::int64_t* shuffle64_ = nullptr;
  std::shared_ptr<const MappedFile> mappings_[3];
};

/// Why the cached arrays cannot be used: a file is missing or cut, a checksum differs (reads all three files), or they
/// were made from other data or settings. Empty: they can.
std::optional<std::string> why_not_cached(const IndexRequest& request);

/// Builds the arrays and puts the four files in place, each by one rename, the check file last.
/// @return the bits of a position in the sample index, 32 or 64.
/// @param before_rename  called when everything is written and nothing is renamed yet (tests slow the builder down).
/// @throws IoError if the folder cannot be written: name another one with data.cache_dir.
int store_index(const IndexRequest& request, const std::function<void()>& before_rename = {});

/// Maps the arrays. Checks the settings and lengths, not the checksums, so every rank may call it.
/// @throws IoError if they cannot be used.
IndexArrays load_index(const IndexRequest& request);

}  // namespace espalier::data_indexed
