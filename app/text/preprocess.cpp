#include "text/preprocess.hpp"

#include <chrono>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "espalier/error.hpp"
#include "text/progress.hpp"
#include "train/stop.hpp"

namespace espalier::app {
namespace {

std::string full_path(const std::string& file) { return std::filesystem::absolute(file).lexically_normal().string(); }

std::string plural(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void make_folder_of(const std::string& prefix) {
  const auto folder = std::filesystem::path(full_path(prefix)).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError(folder.string(), "cannot be made", error.value());
}

void throw_if_stopped(const std::string& output) {
  if (const int signal = StopSignals::received()) {
    throw Error(ExitCode::interrupted,
                fmt::format("{}: stopped by signal {}; nothing was written", full_path(output), signal));
  }
}

std::string skipped_by_fault(const PreprocessReport& report, const PreprocessJob& job) {
  std::string text;
  for (int fault = 0; fault < kLineFaults; ++fault) {
    const std::int64_t count = report.read.skipped[static_cast<std::size_t>(fault)];
    if (count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count,
                          describe(static_cast<LineFault>(fault), job.rules.key));
  }
  return text;
}

}  // namespace

PreprocessReport preprocess(const PreprocessJob& job, const Tokenizer& tokenizer, TokenWriter& writer,
                            const std::function<void(std::int64_t)>& advanced) {
  const auto start = std::chrono::steady_clock::now();
  if (job.end_of_document && tokenizer.end_of_document() < 0) {
    throw ConfigError(
        "tokenizer " + tokenizer.fingerprint() +
        " has no end-of-document id; documents would run into each other: --no-end-of-document accepts that");
  }
  PreprocessReport report;
  make_folder_of(job.output);
  writer.open(full_path(job.output), tokenizer.vocab_size());
  std::vector<std::int32_t> ids;
  const DocumentSink sink = [&](std::string_view text) {
    throw_if_stopped(job.output);
    if (text.empty()) {
      ++report.empty;
      return;
    }
    ids.clear();
    tokenizer.encode(text, ids);
    if (job.end_of_document) ids.push_back(tokenizer.end_of_document());
    writer.add_document(ids);
    ++report.documents;
    report.tokens += static_cast<std::int64_t>(ids.size());
  };
  for (const std::string& input : job.inputs) read_documents(input, job.rules, report.read, sink, advanced);
  throw_if_stopped(job.output);
  if (report.documents == 0) {
    const std::string faults = skipped_by_fault(report, job);
    throw IoError(fmt::format("{}{}: no text in it ({} skipped{}); nothing was written", full_path(job.inputs.front()),
                              job.inputs.size() > 1 ? fmt::format(" and {} more", job.inputs.size() - 1) : "",
                              plural(report.empty, "empty document"), faults.empty() ? "" : "; lines: " + faults));
  }
  writer.finish();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::string to_string(const PreprocessReport& report, const PreprocessJob& job) {
  const double rate = static_cast<double>(report.read.bytes) / std::max(report.seconds, 1e-6);
  std::string text =
      fmt::format("{}: {}, {} from {} in {:.1f} s ({}/s)\n", job.output, plural(report.documents, "document"),
                  plural(report.tokens, "token"), shown_bytes(static_cast<double>(report.read.bytes)), report.seconds,
                  shown_bytes(rate));
  if (report.empty > 0) text += plural(report.empty, "empty document") + " skipped\n";
  if (const std::int64_t skipped = report.read.all_skipped(); skipped > 0) {
    // Lines of JSONL; of plain text a document counts as one.
    text += fmt::format("{} of {} skipped: {}\n", skipped,
                        plural(std::max(report.read.lines, report.documents + report.empty + skipped), "line"),
                        skipped_by_fault(report, job));
  }
  if (report.read.replaced > 0) text += plural(report.read.replaced, "invalid character") + " replaced by U+FFFD\n";
  return text;
}

}  // namespace espalier::app
