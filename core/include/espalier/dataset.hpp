#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/export.hpp"

namespace espalier {

enum class Split : std::uint8_t { train, valid, test };

/// One named collection of samples: the training data (exactly one), or a validation or test set ("valid", "fr", …).
struct SampleSet {
  std::string name;
  Split split = Split::train;
  std::int64_t samples = 0;  ///< indices [0, samples) may be read
};

/// Tokens [offset, offset + count) of one document.
struct SamplePiece {
  std::int64_t document = 0, offset = 0, count = 0;
};

/// Provenance of a sample, for `data show` and spike reports.
struct SampleOrigin {
  std::string source;                 ///< path prefix of the data
  std::int64_t sample = 0;            ///< number inside that source
  std::vector<SamplePiece> pieces{};  ///< in the sample's order; empty where the dataset does not say
};

/// Fixed-length token samples. Order is the dataset's own (already shuffled and blended); the trainer reads training samples at
/// consecutive indices, so the order does not depend on the number of ranks. Safe to call from one loader thread at a time.
class ESPALIER_API Dataset {
 public:
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset();

  virtual std::span<const SampleSet> sets() const = 0;
  /// Tokens a sample has: seq_length + 1.
  virtual std::int64_t sample_tokens() const = 0;
  /// Writes one sample.
  /// @param set  position in sets().
  /// @param tokens  [sample_tokens()], written; ids are below the tokenizer's vocabulary.
  /// @param loss_mask  [sample_tokens() − 1] filled with 1 by the caller, or empty; the dataset sets 0 where a target does not count.
  /// @throws IoError naming path and offset.
  virtual void read(int set, std::int64_t index, std::span<std::int32_t> tokens, std::span<std::uint8_t> loss_mask) const = 0;
  virtual SampleOrigin origin(int set, std::int64_t index) const = 0;
  /// Hash of content and order: a checkpoint keeps it, a resume compares it.
  virtual std::uint64_t fingerprint() const = 0;
  /// Whether the first `samples` training samples of the order with that fingerprint are the first of this one, too.
  virtual bool continues(std::uint64_t fingerprint, std::int64_t samples) const;

 protected:
  Dataset() = default;
};

/// Writes token documents in a dataset plugin's own format (`trainer preprocess`). A plugin that reads a format offers its writer
/// as a second factory. Nothing appears under the final name before finish(); destruction without finish() leaves nothing behind.
class ESPALIER_API TokenWriter {
 public:
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  virtual ~TokenWriter();

  /// @param prefix  path without extension.
  /// @param vocab  ids are in [0, vocab): chooses the width.
  virtual void open(std::string_view prefix, std::int64_t vocab) = 0;
  /// @throws IoError for an id outside [0, vocab), or a failed write.
  virtual void add_document(std::span<const std::int32_t> tokens) = 0;
  /// Publishes the files by rename, after they are on disk.
  virtual void finish() = 0;

 protected:
  TokenWriter() = default;
};

/// A job of a plugin on its own files, outside any run: `trainer data inspect PREFIX` and the like. Its options are one
/// table a job, of which one is given: {inspect = {prefix = "…", json = true}}. Of the host only log() is there.
class ESPALIER_API DatasetTool {
 public:
  DatasetTool(const DatasetTool&) = delete;
  DatasetTool& operator=(const DatasetTool&) = delete;
  virtual ~DatasetTool();

  /// Does it and returns what the command prints. @throws IoError, ConfigError.
  virtual std::string run() = 0;

 protected:
  DatasetTool() = default;
};

}  // namespace espalier
