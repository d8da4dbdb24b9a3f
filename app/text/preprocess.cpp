#include "text/preprocess.hpp"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "espalier/error.hpp"
#include "text/byte_source.hpp"
#include "text/piece_workers.hpp"
#include "text/progress.hpp"
#include "train/phase.hpp"
#include "train/stop.hpp"

namespace espalier::app {
namespace {

std::string plural(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string output_of(const PreprocessJob& job, std::string_view language) {
  std::string output = job.output;
  if (job.language != LanguageFrom::nothing) {
    output.replace(output.find(kLanguagePlace), kLanguagePlace.size(), language);
  }
  return full_path(output);
}

void make_folder_of(const std::string& prefix) {
  const auto folder = std::filesystem::path(prefix).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError(folder.string(), "cannot be made", error.value());
}

/// All that decides what the parts hold, a line each.
std::string description_of(const PreprocessJob& job, const Tokenizer& tokenizer) {
  const DocumentRules& rules = job.rules;
  std::string text = fmt::format(
      "preprocess 1\ntokenizer {} of {} ids\nend of document {}\nformat {}, paragraphs {}, key {}, at most {} bytes\n"
      "languages {} {}\nbad lines {}, bad characters {}\npieces of {} bytes\n",
      tokenizer.fingerprint(), tokenizer.vocab_size(), job.end_of_document, static_cast<int>(rules.format),
      rules.split_paragraphs, rules.key, rules.longest, static_cast<int>(job.language), rules.language_key,
      rules.skip_bad_lines ? "skip" : "stop", rules.repair_characters ? "replace" : "refuse", job.piece_bytes);
  for (const std::string& input : job.inputs) {
    struct stat info {};
    const std::string path = full_path(input);
    if (::stat(path.c_str(), &info) != 0) throw IoError(path, "cannot be read", errno);
    text += fmt::format("input {} of {} bytes, changed at {}.{:09}\n", path, info.st_size, info.st_mtim.tv_sec,
                        info.st_mtim.tv_nsec);
  }
  return text;
}

std::string skipped_by_fault(const PreprocessReport& report, const PreprocessJob& job) {
  std::string text;
  for (int fault = 0; fault < kLineFaults; ++fault) {
    const std::int64_t count = report.counts.read.skipped[static_cast<std::size_t>(fault)];
    if (count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count,
                          describe(static_cast<LineFault>(fault), job.rules.key));
  }
  return text;
}

/// One run, from the checks to the files. Everything is called by all ranks.
class Preprocess {
 public:
  Preprocess(const PreprocessJob& job, const Tokenizer& tokenizer, const WriterMaker& make_writer, Communicator& world)
      : job_(job), tokenizer_(tokenizer), make_writer_(make_writer), world_(world) {}

  PreprocessReport run() {
    const auto start = std::chrono::steady_clock::now();
    phase(world_, [&] { prepare(); });
    open_parts();
    cut();
    work();
    collect();
    write();
    phase(world_, [&] {
      if (world_.rank() == 0) parts_->remove();
    });
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return report_;
  }

 private:
  void prepare() {
    if (job_.end_of_document && tokenizer_.end_of_document() < 0) {
      throw ConfigError(
          "tokenizer " + tokenizer_.fingerprint() +
          " has no end-of-document id; documents would run into each other: --no-end-of-document accepts that");
    }
    const std::string prefix = output_of(job_, "languages");
    for (const std::string& input : job_.inputs) {
      for (const char* of_pair : {".bin", ".idx"}) {
        std::error_code error;
        if (std::filesystem::equivalent(full_path(input), prefix + of_pair, error))
          throw ConfigError("command line: --output: " + prefix + of_pair + " is an input, which would be replaced; name another prefix");
      }
    }
    description_ = description_of(job_, tokenizer_);
    parts_.emplace(prefix + ".parts", description_, tokenizer_.vocab_size());
    if (world_.rank() == 0) make_folder_of(prefix);
  }

  /// Rank 0 makes the folder, then the others look for it.
  void open_parts() {
    phase(world_, [&] {
      if (world_.rank() == 0) parts_->open(job_.restart);
    });
    phase(world_, [&] {
      if (world_.rank() > 0) parts_->join();
      parts_->scan();
    });
  }

  void cut() {
    try {
      make_queue();
    } catch (...) {
      if (world_.rank() == 0 && parts_->size() == 0) parts_->remove();  // made for nothing
      throw;
    }
    report_.pieces_before = parts_->size();
  }

  void make_queue() {
    phase(world_, [&] {
      const PieceQueue::Share share{world_.rank(), world_.size(), job_.piece_bytes};
      queue_.emplace(job_.inputs, job_.rules, share,
                     PieceQueue::Done{[&](int file, std::int64_t piece) { return parts_->has(file, piece); },
                                      [&](int file) { return parts_->has_all(file); }});
      if (queue_->repeatable()) return;
      if (world_.size() > 1)
        throw IoError("an input that is no file (a pipe) can be read once only; start without mpiexec, or name a file");
    });
  }

  void work() {
    std::optional<ByteProgress> progress;
    if (job_.progress && world_.rank() == 0) {
      progress.emplace("preprocess " + job_.output, world_.size() * queue_->share_bytes());
    }
    const WorkDone done = work_off(job_, tokenizer_, *queue_, *parts_, world_, progress ? &*progress : nullptr);
    progress.reset();
    report_.bytes_now = done.bytes;
    if (done.failure.kind != PieceFailure::Kind::none) give_up(done.failure);
  }

  [[noreturn]] void give_up(const PieceFailure& failure) {
    const bool keep = failure.kind != PieceFailure::Kind::input && queue_->repeatable();
    if (!keep) {
      phase(world_, [&] {
        if (world_.rank() == 0) parts_->remove();
      });
    }
    const std::string kept = keep ? "; finished pieces stay in " + parts_->path().string() +
                                        ": the same command goes on, --restart drops them"
                                  : "";
    if (failure.kind == PieceFailure::Kind::stopped) stopped(kept);
    throw AgreedError(static_cast<ExitCode>(failure.code), failure.text + kept);
  }

  [[noreturn]] void stopped(const std::string& kept) const {
    const int signal = StopSignals::received();
    throw AgreedError(ExitCode::interrupted,
                      output_of(job_, kLanguagePlace) + ": stopped by " +
                          (signal != 0 ? "signal " + std::to_string(signal) : "a signal to another rank") +
                          (kept.empty() ? "; nothing was written" : kept));
  }

  /// A file that is written, cut or copied again meanwhile was read in part as it was and in part as it is.
  void require_same_inputs() {
    bool changed = false;
    phase(world_, [&] { changed = queue_->repeatable() && description_of(job_, tokenizer_) != description_; });
    std::string changes;
    for (const std::string& text : gather_strings(world_, changed ? "changed" : "")) changes += text;
    if (changes.empty()) return;
    phase(world_, [&] {
      if (world_.rank() == 0) parts_->remove();
    });
    throw AgreedError(ExitCode::io, fmt::format("{}{}: changed while it was read; nothing was written. Run the same command when nothing "
                                                "writes there any more",
                                                full_path(job_.inputs.front()),
                                                job_.inputs.size() > 1 ? fmt::format(" or one of {} more", job_.inputs.size() - 1) : ""));
  }

  void collect() {
    require_same_inputs();
    phase(world_, [&] {
      parts_->scan();
      for (const PartInfo& info : parts_->infos(static_cast<int>(job_.inputs.size()))) {
        ++report_.pieces;
        report_.counts.add(info.counts);
        for (const auto& [language, counts] : info.languages) {
          LanguageCounts& sum = report_.languages[language];
          sum.documents += counts.documents;
          sum.tokens += counts.tokens;
          sum.bytes += counts.bytes;
        }
      }
    });
    if (report_.counts.documents > 0) return;
    phase(world_, [&] {
      if (world_.rank() == 0) parts_->remove();
    });
    const std::string faults = skipped_by_fault(report_, job_);
    throw AgreedError(
        ExitCode::io,
        fmt::format("{}{}: no text in it ({} skipped{}); nothing was written", full_path(job_.inputs.front()),
                    job_.inputs.size() > 1 ? fmt::format(" and {} more", job_.inputs.size() - 1) : "",
                    plural(report_.counts.empty, "empty document"), faults.empty() ? "" : "; lines: " + faults));
  }

  /// Each rank writes whole outputs.
  void write() {
    bool stopped_here = false;
    phase(world_, [&] {
      std::int64_t bytes = 0;
      std::vector<std::string> own;
      int at = 0;
      for (const auto& [language, counts] : report_.languages) {
        if (at++ % world_.size() != world_.rank()) continue;
        own.push_back(language);
        bytes += counts.bytes;
      }
      std::optional<ByteProgress> progress;
      if (job_.progress && world_.rank() == 0) progress.emplace("preprocess " + job_.output + ": writing", bytes);
      try {
        for (const std::string& language : own) {
          stopped_here = stopped_here || !write_output(language, progress ? &*progress : nullptr);
        }
      } catch (const IoError& error) {
        throw IoError(std::string(error.what()) + "; finished pieces stay in " + parts_->path().string() +
                      ": the same command goes on");
      }
    });
    std::string stops;
    for (const std::string& text : gather_strings(world_, stopped_here ? "stopped" : "")) stops += text;
    if (!stops.empty()) give_up({PieceFailure::Kind::stopped, {}, 0, {}});
  }

  /// False when it was stopped.
  bool write_output(const std::string& language, ByteProgress* progress) {
    const Owned<TokenWriter> writer = make_writer_();
    writer->open(output_of(job_, language), tokenizer_.vocab_size());
    const auto width = static_cast<std::int64_t>(tokenizer_.vocab_size() <= 65536 ? 2 : 4);
    try {
      parts_->read(language, [&](std::span<const std::int32_t> ids) {
        if (StopSignals::received() != 0) throw AgreedError(ExitCode::interrupted, "");
        writer->add_document(ids);
        if (progress != nullptr) progress->add(4 + width * std::ssize(ids));
      });
    } catch (const AgreedError&) {
      return false;
    }
    writer->finish();
    return true;
  }

  const PreprocessJob& job_;
  const Tokenizer& tokenizer_;
  const WriterMaker& make_writer_;
  Communicator& world_;
  std::string description_;  ///< of the inputs as they were at the start, too
  std::optional<PartFolder> parts_;
  std::optional<PieceQueue> queue_;
  PreprocessReport report_;
};

}  // namespace

std::string language_of_file(const std::string& file) {
  std::string name = std::filesystem::path(file).filename().string();
  name = name.substr(0, name.find('.'));
  const auto cut_number = [&](std::string_view before) {
    const std::size_t end = name.find_last_not_of("0123456789");
    if (end == std::string::npos || end + 1 == name.size()) return;
    const std::string_view head = std::string_view(name).substr(0, end + 1);
    if (head.ends_with(before)) name.resize(head.size() - before.size());
  };
  cut_number("-of-");
  cut_number("-");
  cut_number("_");
  if (!is_language_name(name)) {
    throw ConfigError("command line: --language-from-name: \"" + file +
                      "\" names no language; expected a name as fr.jsonl, zh-hans.txt.gz or fr-00001-of-00012.jsonl");
  }
  return name;
}

PreprocessReport preprocess(const PreprocessJob& job, const Tokenizer& tokenizer, const WriterMaker& make_writer,
                            Communicator& world) {
  return Preprocess(job, tokenizer, make_writer, world).run();
}

std::string to_string(const PreprocessReport& report, const PreprocessJob& job) {
  const PartCounts& counts = report.counts;
  const double rate = static_cast<double>(report.bytes_now) / std::max(report.seconds, 1e-6);
  std::string text =
      fmt::format("{}: {}, {} from {} in {:.1f} s ({}/s)\n", job.output, plural(counts.documents, "document"),
                  plural(counts.tokens, "token"), shown_bytes(static_cast<double>(counts.read.bytes)), report.seconds,
                  shown_bytes(rate));
  if (report.pieces_before > 0) {
    text +=
        fmt::format("{} of {} were there from a run before\n", report.pieces_before, plural(report.pieces, "piece"));
  }
  if (job.language != LanguageFrom::nothing) {
    for (const auto& [language, sum] : report.languages)
      text += fmt::format("  {}: {}, {}\n", language, plural(sum.documents, "document"), plural(sum.tokens, "token"));
  }
  if (counts.empty > 0) text += plural(counts.empty, "empty document") + " skipped\n";
  if (const std::int64_t skipped = counts.read.all_skipped(); skipped > 0) {
    // Lines of JSONL; of plain text a document counts as one.
    text += fmt::format("{} of {} skipped: {}\n", skipped,
                        plural(std::max(counts.read.lines, counts.documents + counts.empty + skipped), "line"),
                        skipped_by_fault(report, job));
  }
  if (counts.read.replaced > 0) text += plural(counts.read.replaced, "invalid character") + " replaced by U+FFFD\n";
  return text;
}

}  // namespace espalier::app
