#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "espalier/dataset.hpp"
#include "espalier/tokenizer.hpp"
#include "text/documents.hpp"

namespace espalier::app {

struct PreprocessJob {
  std::vector<std::string> inputs;
  std::string output;  ///< prefix of the files that are written
  DocumentRules rules;
  bool end_of_document = true;  ///< append the tokenizer's end-of-document id to each document
};

struct PreprocessReport {
  ReadCounts read;
  std::int64_t documents = 0;  ///< written
  std::int64_t empty = 0;      ///< documents without a byte: not written
  std::int64_t tokens = 0;     ///< written, end-of-document ids included
  double seconds = 0;
};

/// Text files → token documents, in the order of files and lines. The output appears under its name only when all of it
/// is on disk; what is thrown leaves nothing behind.
/// @param advanced  progress, in bytes of input.
/// @throws IoError for bad input (file and line), a failed write, or input without a single document;
/// Error(interrupted) after a signal
///         (train/stop.hpp); ConfigError when the tokenizer has no end-of-document id and one is asked for.
PreprocessReport preprocess(const PreprocessJob& job, const Tokenizer& tokenizer, TokenWriter& writer,
                            const std::function<void(std::int64_t bytes)>& advanced);

/// The report in words, a line each: documents and tokens; then, where there were any, empty documents, skipped lines
/// by fault, replaced characters.
std::string to_string(const PreprocessReport& report, const PreprocessJob& job);

}  // namespace espalier::app
