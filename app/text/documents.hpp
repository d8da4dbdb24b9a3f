#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_text.hpp"

namespace espalier::app {

enum class TextFormat : std::uint8_t {
  automatic,  ///< by the name: .jsonl, .ndjson and .json are JSONL, everything else is plain text
  text,       ///< one document a file
  jsonl,      ///< one object a line, the document under a key
};

struct DocumentRules {
  TextFormat format = TextFormat::automatic;
  bool split_paragraphs = false;  ///< plain text: blank lines end a document
  std::string key = "text";       ///< of JSONL
  bool skip_bad_lines = false;    ///< false: the first one is an error
  bool offers_options = false;    ///< messages may name the options of `preprocess` that go on all the same
  bool repair_characters =
      false;  ///< invalid UTF-8 and lone surrogates become U+FFFD, counted; false: a fault of the line
};

/// What was read besides the documents.
struct ReadCounts {
  std::int64_t bytes = 0;                           ///< of the files
  std::int64_t lines = 0;                           ///< of JSONL, blank ones left out
  std::int64_t blank_lines = 0;                     ///< of JSONL
  std::int64_t replaced = 0;                        ///< pieces that became U+FFFD
  std::array<std::int64_t, kLineFaults> skipped{};  ///< lines (of plain text: documents) by fault

  std::int64_t all_skipped() const;
};

/// The format a file is read in: the one asked for, or what its name says.
TextFormat format_of(const std::filesystem::path& file, TextFormat asked);

/// Gets each document; the text is valid UTF-8 and lives until the call returns.
using DocumentSink = std::function<void(std::string_view text)>;

/// Reads one file from start to end and hands out its documents in order, empty ones included. A byte-order mark at the
/// start of the file is dropped. Memory: that of the longest line (JSONL), paragraph or file.
/// @param advanced  called now and then with the bytes read since the last call.
/// @throws IoError with the file's full path and the line number, for a fault that the rules do not skip, or when
/// reading fails.
void read_documents(const std::filesystem::path& file, const DocumentRules& rules, ReadCounts& counts,
                    const DocumentSink& sink, const std::function<void(std::int64_t bytes)>& advanced);

/// Bytes of the files together, after checking that each is there, can be read and is no folder: a typing error in the
/// last of many is found before the first is read. What has no size (a pipe) counts 0.
std::int64_t check_inputs(const std::vector<std::string>& files);

}  // namespace espalier::app
