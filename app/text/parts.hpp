#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/documents.hpp"

namespace espalier::app {

/// What became of one piece of the input.
struct PartCounts {
  ReadCounts read;
  std::int64_t documents = 0;  ///< with tokens
  std::int64_t empty = 0;      ///< documents without a byte
  std::int64_t tokens = 0;
  void add(const PartCounts& other);
};

/// The documents of one piece as tokens, by language, in memory.
class PartBuffer {
 public:
  /// @param vocab  ids are in [0, vocab): two bytes each where that is enough.
  explicit PartBuffer(std::int64_t vocab);
  /// @throws IoError for an id outside the vocabulary, or too many languages.
  void add(std::string_view language, std::span<const std::int32_t> ids);

 private:
  friend class PartFolder;
  struct Segment {
    std::string bytes;  // documents: u32 count, then ids of `width` bytes
    std::int64_t documents = 0, tokens = 0;
  };
  std::int64_t vocab_;
  std::size_t width_;
  std::map<std::string, Segment, std::less<>> segments_;
};

struct LanguageCounts {
  std::int64_t documents = 0, tokens = 0, bytes = 0;  ///< bytes of the parts
};

/// What a folder of parts knows about the part of one piece.
struct PartInfo {
  bool last = false;  ///< of its file
  PartCounts counts;
  std::map<std::string, LanguageCounts, std::less<>> languages;
};

/// The folder that holds finished pieces of a `preprocess` job until the output is written: one file a piece, which
/// appears under its name when it is whole. A job that was stopped or killed finds them there.
class PartFolder {
 public:
  /// @param job  all that decides the content of the parts, a line each; kept in the folder and compared.
  PartFolder(std::filesystem::path folder, std::string job, std::int64_t vocab);
  ~PartFolder();
  PartFolder(const PartFolder&) = delete;
  PartFolder& operator=(const PartFolder&) = delete;

  /// On one rank: makes the folder, or takes an old one up. @param restart  whether parts of an old one are removed.
  /// @throws IoError when another process works in it, or it belongs to another job.
  void open(bool restart);
  /// On the other ranks, after open(): @throws IoError when this rank does not see the same folder.
  void join() const;
  /// Reads what is there. Thread-safe after it.
  void scan();

  bool has(int file, std::int64_t piece) const { return known_.contains(PieceKey{file, piece}); }
  /// Whether all pieces of a file are there.
  bool has_all(int file) const;
  std::int64_t size() const { return static_cast<std::int64_t>(known_.size()); }

  /// Thread-safe.
  void write(const Piece& piece, const PartBuffer& buffer, const PartCounts& counts) const;

  /// Told to the other ranks: pieces behind this one are no longer needed.
  void stop_behind(PieceKey piece) const;
  std::optional<PieceKey> stopped_behind() const;

  /// All parts in order. @throws IoError when one is missing: `files` must be whole.
  std::vector<PartInfo> infos(int files) const;
  /// Hands out the documents of a language in the order of files and pieces. Call after scan().
  /// @throws IoError for a damaged part, which is removed, so that the next run makes it anew.
  void read(std::string_view language, const std::function<void(std::span<const std::int32_t> ids)>& sink) const;

  /// Removes the folder.
  void remove() const;
  const std::filesystem::path& path() const { return folder_; }

 private:
  std::filesystem::path file_of(PieceKey key) const;
  void refuse_other_job(const std::string& found) const;
  void clear() const;

  std::filesystem::path folder_;
  std::string job_;
  std::size_t width_;
  std::map<PieceKey, PartInfo> known_;
  int lock_ = -1;
};

}  // namespace espalier::app
