#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "espalier/communicator.hpp"
#include "espalier/dataset.hpp"
#include "espalier/plugin_host.hpp"
#include "espalier/tokenizer.hpp"
#include "text/documents.hpp"
#include "text/parts.hpp"

namespace espalier::app {

/// What decides into which files a document goes.
enum class LanguageFrom : std::uint8_t {
  nothing,    ///< one output
  key,        ///< DocumentRules::language_key of its line
  file_name,  ///< the name of its file: language_of_file()
};

/// Where "{language}" stands in the prefix of outputs by language.
inline constexpr std::string_view kLanguagePlace = "{language}";

struct PreprocessJob {
  std::vector<std::string> inputs;
  std::string output;  ///< prefix of the files that are written; by language: with kLanguagePlace in it
  DocumentRules rules;
  LanguageFrom language = LanguageFrom::nothing;
  bool end_of_document = true;                        ///< append the tokenizer's end-of-document id to each document
  bool restart = false;                               ///< drop what a stopped run left
  int threads = 1;                                    ///< of this rank
  std::int64_t piece_bytes = std::int64_t{16} << 20;  ///< text that a thread works off at a time
  bool progress = false;                              ///< show it on standard error
};

struct PreprocessReport {
  PartCounts counts;
  std::map<std::string, LanguageCounts, std::less<>> languages;  ///< "" without languages
  std::int64_t pieces = 0, pieces_before = 0;                    ///< all, and those an earlier run had done
  std::int64_t bytes_now = 0;                                    ///< of the files, worked off in this run, all ranks
  double seconds = 0;
};

using WriterMaker = std::function<Owned<TokenWriter>()>;

/// Text files → token documents, in the order of files and lines, whatever the number of threads and ranks: pieces of
/// the input become parts in the folder PREFIX.parts, and the parts are written in order. An output appears under its
/// name only when all of it is on disk. A run that was stopped or killed is taken up by the same command; bad input
/// leaves nothing behind. Collective over the world, on a file system that all ranks share; every failure is thrown
/// alike on all ranks, that of the first bad line for input.
/// @throws IoError for bad input (file and line), a failed write, or input without a single document;
/// Error(interrupted) after a signal (train/stop.hpp); ConfigError when the tokenizer has no end-of-document id and one
/// is asked for.
PreprocessReport preprocess(const PreprocessJob& job, const Tokenizer& tokenizer, const WriterMaker& make_writer,
                            Communicator& world);

/// The report in words, a line each: documents and tokens; then, where there were any, languages, empty documents,
/// skipped lines by fault, replaced characters.
std::string to_string(const PreprocessReport& report, const PreprocessJob& job);

/// "fr" of "corpus/fr.jsonl.gz", "fr-00001-of-00012.jsonl" or "fr_003.txt". @throws ConfigError when there is none.
std::string language_of_file(const std::string& file);

}  // namespace espalier::app
