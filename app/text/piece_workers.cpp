#include "text/piece_workers.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "espalier/error.hpp"
#include "train/phase.hpp"
#include "train/stop.hpp"

namespace espalier::app {
namespace {

/// Thrown inside this file only.
struct Stopped {};

class Workers {
 public:
  Workers(const PreprocessJob& job, const Tokenizer& tokenizer, PieceQueue& queue, const PartFolder& parts, int ranks,
          ByteProgress* progress)
      : job_(job), tokenizer_(tokenizer), queue_(queue), parts_(parts), ranks_(ranks), progress_(progress) {
    if (job.language == LanguageFrom::file_name) {
      for (const std::string& input : job.inputs) languages_.push_back(language_of_file(input));
    }
  }

  PieceFailure run() {
    std::vector<std::thread> others;
    for (int thread = 1; thread < job_.threads; ++thread) others.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : others) thread.join();
    return failure_;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  void work() {
    while (!failed_) {
      std::optional<Piece> piece;
      try {
        piece = queue_.next();
      } catch (...) {
        const Failure failure = current_failure();
        return fail({PieceFailure::Kind::input, queue_.at(), failure.code, failure.text});
      }
      if (!piece) return;
      const PieceKey key{piece->file, piece->number};
      if (const auto border = parts_.stopped_behind(); border && *border < key) return;
      if (!done(*piece, key)) return;
    }
  }

  /// Pieces are handed out in order: those before one that failed are at work or done, those behind are not needed.
  void fail(PieceFailure failure) {
    failed_ = true;
    const bool stopped = failure.kind == PieceFailure::Kind::stopped;
    parts_.stop_behind(stopped ? PieceKey{0, -1} : failure.piece);
    const std::lock_guard lock(mutex_);
    const bool first = failure_.kind == PieceFailure::Kind::none || failure_.kind == PieceFailure::Kind::stopped ||
                       (!stopped && failure.piece < failure_.piece);
    if (first) failure_ = std::move(failure);
  }

  bool done(const Piece& piece, PieceKey key) {
    auto kind = PieceFailure::Kind::input;
    try {
      PartBuffer buffer(tokenizer_.vocab_size());
      const PartCounts counts = encode(piece, buffer);
      kind = PieceFailure::Kind::machine;
      parts_.write(piece, buffer, counts);
    } catch (const Stopped&) {
      fail({PieceFailure::Kind::stopped, key, 0, {}});
      return false;
    } catch (...) {
      const Failure failure = current_failure();
      fail({kind, key, failure.code, failure.text});
      return false;
    }
    bytes_ += piece.file_bytes;
    if (progress_ != nullptr) {
      const std::lock_guard lock(mutex_);
      if (const std::int64_t over = queue_.passed_over_bytes(); over > passed_over_) {
        progress_->skip(ranks_ * (over - passed_over_));
        passed_over_ = over;
      }
      progress_->add(ranks_ * piece.file_bytes);
    }
    return true;
  }

  PartCounts encode(const Piece& piece, PartBuffer& buffer) {
    PartCounts counts;
    std::vector<std::int32_t> ids;
    const std::int32_t end = job_.end_of_document ? tokenizer_.end_of_document() : -1;
    const std::string& file = job_.inputs[static_cast<std::size_t>(piece.file)];
    const std::string_view of_file =
        languages_.empty() ? std::string_view() : languages_[static_cast<std::size_t>(piece.file)];
    const DocumentSink sink = [&](std::string_view text, std::string_view language) {
      if (StopSignals::received() != 0) throw Stopped{};
      if (text.empty()) {
        ++counts.empty;
        return;
      }
      ids.clear();
      tokenizer_.encode(text, ids);
      if (end >= 0) ids.push_back(end);
      buffer.add(languages_.empty() ? language : of_file, ids);
      ++counts.documents;
      counts.tokens += std::ssize(ids);
    };
    if (StopSignals::received() != 0) throw Stopped{};
    read_piece(file, piece, job_.rules, counts.read, sink);
    return counts;
  }

  const PreprocessJob& job_;
  const Tokenizer& tokenizer_;
  PieceQueue& queue_;
  const PartFolder& parts_;
  int ranks_;
  ByteProgress* progress_;
  std::vector<std::string> languages_;  // of the inputs, when their names say it
  std::atomic<bool> failed_{false};
  std::atomic<std::int64_t> bytes_{0};
  std::mutex mutex_;
  std::int64_t passed_over_ = 0;
  PieceFailure failure_;
};

using Json = nlohmann::json;

std::string to_text(const WorkDone& done) {
  const PieceFailure& failure = done.failure;
  return Json{{"kind", static_cast<int>(failure.kind)},
              {"file", failure.piece.file},
              {"piece", failure.piece.piece},
              {"code", failure.code},
              {"text", failure.text},
              {"bytes", done.bytes}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);  // a path need not be UTF-8
}

WorkDone done_of(const std::string& text) {
  const Json json = Json::parse(text);
  return {{static_cast<PieceFailure::Kind>(json.at("kind").get<int>()),
           {json.at("file").get<int>(), json.at("piece").get<std::int64_t>()},
           json.at("code").get<int>(),
           json.at("text").get<std::string>()},
          json.at("bytes").get<std::int64_t>()};
}

}  // namespace

WorkDone work_off(const PreprocessJob& job, const Tokenizer& tokenizer, PieceQueue& queue, const PartFolder& parts,
                  Communicator& world, ByteProgress* progress) {
  Workers workers(job, tokenizer, queue, parts, world.size(), progress);
  WorkDone own;
  own.failure = workers.run();
  own.bytes = workers.bytes();
  WorkDone all;
  for (const std::string& text : gather_strings(world, to_text(own))) {
    WorkDone one = done_of(text);
    all.bytes += one.bytes;
    if (one.failure.kind == PieceFailure::Kind::none) continue;
    const bool weaker = all.failure.kind <= PieceFailure::Kind::stopped;
    const bool stronger = one.failure.kind > PieceFailure::Kind::stopped;
    if (all.failure.kind == PieceFailure::Kind::none || (weaker && stronger) ||
        (stronger && one.failure.piece < all.failure.piece)) {
      all.failure = std::move(one.failure);
    }
  }
  return all;
}

}  // namespace espalier::app
