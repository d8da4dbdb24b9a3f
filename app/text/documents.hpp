#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_text.hpp"

namespace espalier::app {

enum class TextFormat : std::uint8_t {
  automatic,  ///< by the name, without .gz or .zst: .jsonl, .ndjson and .json are JSONL, everything else is plain text
  text,       ///< one document a file
  jsonl,      ///< one object a line, the document under a key
};

struct DocumentRules {
  TextFormat format = TextFormat::automatic;
  bool split_paragraphs = false;  ///< plain text: blank lines end a document
  std::string key = "text";       ///< of JSONL
  std::string language_key;       ///< of JSONL: the document's language, "": not asked for
  bool skip_bad_lines = false;    ///< false: the first one is an error
  bool offers_options = false;    ///< messages may name the options of `preprocess` that go on all the same
  bool repair_characters =
      false;  ///< invalid UTF-8 and lone surrogates become U+FFFD, counted; false: a fault of the line
  std::int64_t longest = std::int64_t{256} << 20;  ///< bytes a line (JSONL), paragraph or file may have
};

/// What was read besides the documents.
struct ReadCounts {
  std::int64_t bytes = 0;                           ///< of the files, as they lie on disk
  std::int64_t lines = 0;                           ///< of JSONL, blank ones left out
  std::int64_t blank_lines = 0;                     ///< of JSONL
  std::int64_t replaced = 0;                        ///< pieces that became U+FFFD
  std::array<std::int64_t, kLineFaults> skipped{};  ///< lines (of plain text: documents) by fault

  std::int64_t all_skipped() const;
  void add(const ReadCounts& other);
};

/// The format a file is read in: the one asked for, or what its name says.
TextFormat format_of(const std::filesystem::path& file, TextFormat asked);

/// Place of a piece in the order of the input.
struct PieceKey {
  int file = 0;
  std::int64_t piece = 0;
  auto operator<=>(const PieceKey&) const = default;
};

/// A part of a file: the documents that begin in it.
struct Piece {
  int file = 0;             ///< position among the files
  std::int64_t number = 0;  ///< in its file, from 0
  bool last = false;        ///< of its file
  /// Bytes of a file that lies there as text. Documents belong to the piece that has the first line end (plain text:
  /// blank line) before them, so pieces need not know each other.
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  /// Of a packed file or a pipe: the text itself, and how many lines lie before it.
  std::optional<std::string> text;
  std::int64_t lines_before = 0;
  std::int64_t file_bytes = 0;  ///< what it counts for in ReadCounts::bytes
};

/// Gets each document; the text is valid UTF-8 and lives until the call returns. The language is "" unless
/// DocumentRules::language_key asks for it.
using DocumentSink = std::function<void(std::string_view text, std::string_view language)>;

/// Hands out the documents of a piece in order, empty ones included, and adds to the counts. A byte-order mark at the
/// start of the file is dropped. Memory: that of the longest document that is allowed.
/// @throws IoError with the file's full path and the line number, for a fault that the rules do not skip, or when
/// reading fails.
void read_piece(const std::filesystem::path& file, const Piece& piece, const DocumentRules& rules, ReadCounts& counts,
                const DocumentSink& sink);

/// The whole of one file, packed or not, piece after piece.
/// @param advanced  called now and then with the bytes of the file read since the last call.
/// @throws as read_piece.
void read_documents(const std::string& file, const DocumentRules& rules, ReadCounts& counts, const DocumentSink& sink,
                    const std::function<void(std::int64_t bytes)>& advanced);

/// Bytes of the files together, after checking that each is there, can be read and is no folder: a typing error in the
/// last of many is found before the first is read. What has no size (a pipe) counts 0.
std::int64_t check_inputs(const std::vector<std::string>& files);

}  // namespace espalier::app
