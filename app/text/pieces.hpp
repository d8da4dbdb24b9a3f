#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "text/documents.hpp"

namespace espalier::app {

/// Cuts files into pieces and hands them out. Where the cuts lie depends on content and piece size only, not on who
/// reads or how fast. A file that lies there as text is cut by position; one that is packed, and a pipe, is unpacked
/// here (by one thread at a time) and cut in the text.
class PieceQueue {
 public:
  /// Which pieces this process works on.
  struct Share {
    int rank = 0, ranks = 1;
    std::int64_t piece_bytes = std::int64_t{16} << 20;  ///< of text
  };
  /// What an earlier run has done already.
  struct Done {
    std::function<bool(int file, std::int64_t piece)> piece;  ///< null: nothing
    std::function<bool(int file)> whole_file;
  };

  /// @throws IoError for a file that cannot be opened, or is not packed as its name says.
  PieceQueue(std::vector<std::string> files, const DocumentRules& rules, const Share& share, Done done);
  ~PieceQueue();

  /// The next piece of this share that is not done; nothing at the end. Thread-safe.
  std::optional<Piece> next();
  /// Where it stands: file and piece that come next.
  PieceKey at() const;
  /// Bytes on disk of what was passed over because it was done, so far.
  std::int64_t passed_over_bytes() const;
  /// Bytes on disk of this share's pieces, about; 0 when there are pipes.
  std::int64_t share_bytes() const { return share_bytes_; }
  /// Whether a run that was stopped can be taken up again: not from a pipe.
  bool repeatable() const { return repeatable_; }

 private:
  struct File;
  class Stream;

  bool mine(const File& file, std::int64_t piece) const;
  bool done(int file, std::int64_t piece) const { return done_.piece && done_.piece(file, piece); }
  std::optional<Piece> next_of(int file);

  std::vector<File> files_;
  DocumentRules rules_;
  Share share_;
  Done done_;
  mutable std::mutex mutex_;
  int file_ = 0;
  std::int64_t piece_ = 0;
  std::unique_ptr<Stream> stream_;
  std::int64_t share_bytes_ = 0, passed_over_ = 0;
  bool repeatable_ = true;
  bool streams_by_file_ = false;
};

}  // namespace espalier::app
