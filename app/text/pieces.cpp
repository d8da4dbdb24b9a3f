#include "text/pieces.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "espalier/error.hpp"
#include "text/byte_source.hpp"
#include "text/line_reader.hpp"

namespace espalier::app {

struct PieceQueue::File {
  std::string path;
  int index = 0;
  std::int64_t bytes = 0;  // on disk; 0: unknown
  bool streamed = false;   // unpacked or read from a pipe, and cut here
  bool whole = false;      // one document
  int stream = 0;          // position among the streamed ones
};

/// Text of one file that is unpacked, cut behind lines or paragraphs.
class PieceQueue::Stream {
 public:
  Stream(const std::string& path, const DocumentRules& rules, bool paragraphs)
      : source_(open_unpacked(path)),
        lines_(*source_, 0, rules.longest),
        longest_(rules.longest),
        paragraphs_(paragraphs),
        stops_at_faults_(!rules.skip_bad_lines) {}

  void whole(Piece& piece) {
    piece.text = lines_.rest().text;
    piece.last = true;
    count(piece);
  }

  void cut(Piece& piece, std::int64_t piece_bytes) {
    piece.lines_before = lines_.number();
    std::string& text = piece.text.emplace();
    std::int64_t paragraph = 0;  // bytes of the open one
    while (const auto line = lines_.next()) {
      const bool blank = !line->too_long && line->text.find_first_not_of(" \t\r") == std::string_view::npos;
      const bool kept = !paragraphs_ || paragraph <= longest_;  // the rest of one that is too long is not needed
      if (blank || kept) {
        text.append(line->text);  // of a line that is too long enough to be seen as such
        text += '\n';
      }
      if (line->too_long && stops_at_faults_) {
        // What ends the run: its end may never come, and nothing behind it will be read.
        piece.last = true;
        count(piece);
        return;
      }
      paragraph = blank ? 0 : paragraph + std::ssize(line->text) + 1;
      if (std::ssize(text) >= piece_bytes && (blank || !paragraphs_)) break;
      if (blank && !kept) break;  // lines were left out: the numbers of those behind would be wrong
    }
    piece.last = lines_.at_end();
    count(piece);
  }

 private:
  void count(Piece& piece) {
    piece.file_bytes = source_->file_bytes() - counted_;
    counted_ = source_->file_bytes();
  }

  std::unique_ptr<ByteSource> source_;
  LineReader lines_;
  std::int64_t longest_;
  bool paragraphs_;
  bool stops_at_faults_;
  std::int64_t counted_ = 0;
};

PieceQueue::PieceQueue(std::vector<std::string> files, const DocumentRules& rules, const Share& share, Done done)
    : rules_(rules), share_(share), done_(std::move(done)) {
  int streams = 0;
  for (std::string& path : files) {
    File file;
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) throw IoError(full_path(path), "cannot be read", errno);
    const bool regular = S_ISREG(info.st_mode);
    file.bytes = regular ? info.st_size : 0;
    file.streamed = !regular || packing_of(path) != Packing::none;
    file.whole = format_of(path, rules.format) == TextFormat::text && !rules.split_paragraphs;
    file.index = static_cast<int>(files_.size());
    file.stream = file.streamed ? streams++ : 0;
    file.path = std::move(path);
    repeatable_ = repeatable_ && regular;
    files_.push_back(std::move(file));
  }
  streams_by_file_ = streams >= share.ranks;
  for (const File& file : files_) {
    // A stream that is shared out by pieces is unpacked by every rank.
    const bool all_of_it = file.streamed && !streams_by_file_;
    share_bytes_ += all_of_it ? file.bytes : file.bytes / share.ranks;
  }
  if (!repeatable_) share_bytes_ = 0;
}

PieceQueue::~PieceQueue() = default;

std::int64_t PieceQueue::passed_over_bytes() const {
  const std::lock_guard lock(mutex_);
  return passed_over_;
}

PieceKey PieceQueue::at() const {
  const std::lock_guard lock(mutex_);
  return {file_, piece_};
}

bool PieceQueue::mine(const File& file, std::int64_t piece) const {
  if (file.streamed && streams_by_file_) return file.stream % share_.ranks == share_.rank;
  return (file.index + piece) % share_.ranks == share_.rank;
}

std::optional<Piece> PieceQueue::next() {
  const std::lock_guard lock(mutex_);
  while (file_ < static_cast<int>(files_.size())) {
    if (auto piece = next_of(file_)) return piece;
    ++file_;
    piece_ = 0;
    stream_.reset();
  }
  return std::nullopt;
}

std::optional<Piece> PieceQueue::next_of(int index) {
  const File& file = files_[static_cast<std::size_t>(index)];
  if (file.streamed && piece_ == 0) {
    if (streams_by_file_ && !mine(file, 0)) return std::nullopt;
    if (done_.whole_file && done_.whole_file(index)) {
      passed_over_ += file.bytes;
      return std::nullopt;
    }
  }
  for (;;) {
    Piece piece;
    piece.file = index;
    piece.number = piece_;
    if (file.streamed) {
      if (piece_ > 0 && stream_ == nullptr) return std::nullopt;
      if (stream_ == nullptr)
        stream_ = std::make_unique<Stream>(file.path, rules_,
                                           !file.whole && format_of(file.path, rules_.format) == TextFormat::text);
      file.whole ? stream_->whole(piece) : stream_->cut(piece, share_.piece_bytes);
      if (piece.last) stream_.reset();
    } else {
      piece.begin = file.whole ? 0 : piece_ * share_.piece_bytes;
      if (piece_ > 0 && (file.whole || piece.begin >= file.bytes)) return std::nullopt;
      if (!file.whole) piece.end = piece.begin + share_.piece_bytes;
      piece.last = piece.end >= file.bytes;
      piece.file_bytes = std::min(piece.end, file.bytes) - piece.begin;
    }
    ++piece_;
    if (!mine(file, piece.number)) continue;
    if (done(index, piece.number)) {
      passed_over_ += piece.file_bytes;
      continue;
    }
    return piece;
  }
}

}  // namespace espalier::app
