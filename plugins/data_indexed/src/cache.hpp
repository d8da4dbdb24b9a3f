#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array_file.hpp"
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
  SampleRules rules = {};
};

/// What the names of all cache files of a pair start with: its prefix, or in a folder of their own its last name and a
/// hash of its path.
std::string cache_stem(const std::string& prefix, const std::string& folder);

/// The file that remembers that the pair was checked whole (IndexedFile::write_stamp).
std::string stamp_path(const std::string& prefix, const std::string& folder);

/// The cache files of a request, named as bigscience names them: STEM_NAME_indexmap_{N}ns_{S}sl_{SEED}s_ and
/// {doc_idx,sample_idx,shuffle_idx}.npy; by core's rules "coremap". Beside each lies its check file (check_path):
/// bigscience's names leave out the split, the data and whether a file is whole, so stale or cut arrays would be used
/// without a word.
struct CacheFiles {
  std::string document;
  std::string sample;
  std::string shuffle;

  std::vector<std::string> all() const { return {document, sample, shuffle}; }
};
CacheFiles cache_files(const IndexRequest& request);

/// Tokens of the request's range: from a check file of the same data and range where there is one, else added up.
std::int64_t tokens_of(const IndexRequest& request);

/// The mapped arrays. Copies share the mappings. Each block of a file is compared with its checksum when it is touched
/// first: everything but the plan may throw IoError then, instead of leading to a wrong sample.
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
  std::int64_t sequence(std::int64_t position) const {
    document_check_->touch(document_ + position);
    return document_[position];
  }
  /// Where row `row` of the sample index points, 0 <= row <= samples().
  Place place(std::int64_t row) const {
    if (sample32_ != nullptr) {
      sample_check_->touch(sample32_ + 2 * row);
      return {sample32_[2 * row], sample32_[2 * row + 1]};
    }
    sample_check_->touch(sample64_ + 2 * row);
    return {sample64_[2 * row], sample64_[2 * row + 1]};
  }
  /// Row of sample `index`, 0 <= index < samples().
  std::int64_t shuffled(std::int64_t index) const {
    if (shuffle32_ != nullptr) {
      shuffle_check_->touch(shuffle32_ + index);
      return std::int64_t{shuffle32_[index]};
    }
    shuffle_check_->touch(shuffle64_ + index);
    return shuffle64_[index];
  }
  std::int64_t document_entries() const { return document_entries_; }

 private:
  friend std::optional<IndexArrays> open_index(const IndexRequest& request, std::string& why);

  EpochPlan plan_{};
  std::int64_t document_entries_ = 0;
  const std::int32_t* document_ = nullptr;
  const std::int32_t* sample32_ = nullptr;  // one of each pair is set
  const std::int64_t* sample64_ = nullptr;
  const std::uint32_t* shuffle32_ = nullptr;
  const std::int64_t* shuffle64_ = nullptr;
  std::shared_ptr<const CheckedFile> document_check_;  // each keeps its mapping
  std::shared_ptr<const CheckedFile> sample_check_;
  std::shared_ptr<const CheckedFile> shuffle_check_;
};

/// Maps the arrays when they were made from this request, as their check files say, and their lengths are right; reads
/// no more than check files and headers. Empty with the reason in `why` otherwise.
std::optional<IndexArrays> open_index(const IndexRequest& request, std::string& why);

/// Why the cached arrays cannot be used. Empty: they can.
std::optional<std::string> why_not_cached(const IndexRequest& request);

struct StoreOptions {
  std::function<void()>
      before_rename;        // called when all is written and nothing has its name yet (tests are slow there)
  bool sync = true;         // wait until all is on disk before the names are given
  bool two_threads = true;  // the sample and the shuffle index at the same time
};

/// Builds the arrays and puts the files in place, each by one rename, the check files last.
/// @return the bits of a position in the sample index, 32 or 64.
/// @throws IoError if the folder cannot be written: name another one with data.cache_dir.
int store_index(const IndexRequest& request, const StoreOptions& options = {});

/// Builds the arrays and writes them at these paths, without check files and without waiting for the disk: to compare
/// with those of other programs. Builds on the calling thread alone.
EpochPlan export_index(const IndexRequest& request, const CacheFiles& paths);

/// open_index, or an IoError with the reason.
IndexArrays load_index(const IndexRequest& request);

}  // namespace espalier::data_indexed
