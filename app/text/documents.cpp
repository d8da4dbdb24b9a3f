#include "text/documents.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>

#include "espalier/error.hpp"
#include "text/utf8.hpp"

namespace espalier::app {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;  // large enough that a read call costs nothing per byte

std::string full_path(const std::filesystem::path& file) {
  return std::filesystem::absolute(file).lexically_normal().string();
}

/// A file read in blocks, by line or whole. Views live until the next call.
class TextFile {
 public:
  TextFile(const std::filesystem::path& file, const std::function<void(std::int64_t)>& advanced)
      : path_(full_path(file)), advanced_(advanced), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw IoError(path_, "cannot be opened for reading", errno);
    buffer_.resize(kBlock);
    while (end_ < 3 && fill()) {
    }
    if (std::string_view(buffer_.data(), end_).starts_with("\xEF\xBB\xBF")) start_ = 3;
  }
  ~TextFile() { ::close(descriptor_); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }
  /// Number of the line that was given last, from 1.
  std::int64_t line() const { return line_; }

  /// The next line without its end, or nothing at the end of the file.
  std::optional<std::string_view> next_line() {
    std::size_t searched = start_;
    for (;;) {
      if (const void* found = std::memchr(buffer_.data() + searched, '\n', end_ - searched)) {
        const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data());
        return take(at, at + 1);
      }
      const std::size_t waiting = end_ - start_;
      if (!fill()) return waiting == 0 ? std::nullopt : std::optional(take(end_, end_));
      searched = start_ + waiting;
    }
  }

  std::string_view rest() {
    while (fill()) {
    }
    return take(end_, end_);
  }

 private:
  std::string_view take(std::size_t end, std::size_t next) {
    const std::string_view view(buffer_.data() + start_, end - start_);
    start_ = next;
    ++line_;
    return view;
  }

  /// Appends a block behind [start_, end_); false at the end of the file.
  bool fill() {
    if (start_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + start_, end_ - start_);
      end_ -= start_;
      start_ = 0;
    }
    if (buffer_.size() - end_ < kBlock / 2) buffer_.resize(buffer_.size() * 2);
    for (;;) {
      const ssize_t got = ::read(descriptor_, buffer_.data() + end_, buffer_.size() - end_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw IoError(path_, "cannot be read at byte " + std::to_string(bytes_), errno);
      end_ += static_cast<std::size_t>(got);
      bytes_ += got;
      if (got > 0) advanced_(got);
      return got > 0;
    }
  }

  std::string path_;
  const std::function<void(std::int64_t)>& advanced_;
  int descriptor_;
  std::vector<char> buffer_;
  std::size_t start_ = 0, end_ = 0;
  std::int64_t bytes_ = 0, line_ = 0;
};

std::string shown_byte(unsigned char byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("byte ") + kDigits[byte >> 4] + kDigits[byte & 15];
}

class Reader {
 public:
  Reader(const std::filesystem::path& file, const DocumentRules& rules, ReadCounts& counts, const DocumentSink& sink,
         const std::function<void(std::int64_t)>& advanced)
      : rules_(rules), counts_(counts), sink_(sink), file_(file, advanced) {}
  ~Reader() { counts_.bytes += file_.bytes(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void jsonl() {
    while (const auto line = file_.next_line()) {
      if (line->find_first_not_of(" \t\r") == std::string_view::npos) {
        ++counts_.blank_lines;
        continue;
      }
      ++counts_.lines;
      const auto good = checked(*line, file_.line());
      if (!good) continue;
      const TextField field = read_text_field(*good, rules_.key, rules_.repair_characters, text_);
      counts_.replaced += field.replaced;
      if (field.fault == LineFault::none) {
        sink_(text_);
      } else {
        fault(field.fault, file_.line(), explain(field));
      }
    }
  }

  void whole() {
    if (const auto good = checked(file_.rest(), 1)) sink_(*good);
  }

  void paragraphs() {
    std::string paragraph;
    std::int64_t first = 0;
    const auto end = [&] {
      if (first == 0) return;
      paragraph.pop_back();  // the last line end belongs to the border
      if (const auto good = checked(paragraph, first)) sink_(*good);
      paragraph.clear();
      first = 0;
    };
    while (const auto line = file_.next_line()) {
      if (line->find_first_not_of(" \t\r") == std::string_view::npos) {
        end();
        continue;
      }
      if (first == 0) first = file_.line();
      paragraph.append(*line);
      paragraph += '\n';
    }
    end();
  }

 private:
  /// The text as valid UTF-8, or nothing when it was skipped.
  std::optional<std::string_view> checked(std::string_view text, std::int64_t first_line) {
    const std::size_t bad = find_invalid_utf8(text);
    if (bad == std::string_view::npos) return text;
    if (rules_.repair_characters) {
      repaired_.clear();
      counts_.replaced += append_repaired_utf8(text, repaired_);
      return repaired_;
    }
    const auto before = text.substr(0, bad);
    const std::int64_t line = first_line + std::ranges::count(before, '\n');
    const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    fault(LineFault::bad_characters, line,
          shown_byte(static_cast<unsigned char>(text[bad])) + " at position " + std::to_string(bad - line_start + 1) +
              " is not UTF-8; convert the file" +
              (rules_.offers_options ? ", or replace such bytes with --bad-characters replace" : ""));
    return std::nullopt;
  }

  std::string explain(const TextField& field) const {
    const std::string position = "position " + std::to_string(field.at + 1);
    if (field.fault == LineFault::broken_json) return "not JSON: " + std::string(field.what) + " at " + position;
    if (field.fault == LineFault::bad_characters) {
      return "half of a surrogate pair at " + position +
             " is no character" +
             (rules_.offers_options ? "; replace such halves with --bad-characters replace" : "");
    }
    if (field.fault == LineFault::no_object) return "not an object; expected {\"" + rules_.key + "\": …}";
    if (field.fault == LineFault::no_key)
      return "an object " + describe(field.fault, rules_.key) + " (--key names another key)";
    return describe(field.fault, rules_.key);
  }

  void fault(LineFault what, std::int64_t line, const std::string& text) {
    if (!rules_.skip_bad_lines) {
      throw IoError(file_.path() + ":" + std::to_string(line) + ": " + text +
                    (rules_.offers_options ? "; --on-bad-line skip goes on without such lines" : ""));
    }
    ++counts_.skipped[static_cast<std::size_t>(what)];
  }

  const DocumentRules& rules_;
  ReadCounts& counts_;
  const DocumentSink& sink_;
  TextFile file_;
  std::string text_, repaired_;
};

}  // namespace

TextFormat format_of(const std::filesystem::path& file, TextFormat asked) {
  if (asked != TextFormat::automatic) return asked;
  const std::string extension = file.extension().string();
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json" ? TextFormat::jsonl : TextFormat::text;
}

std::int64_t ReadCounts::all_skipped() const {
  return std::accumulate(skipped.begin(), skipped.end(), std::int64_t{0});
}

void read_documents(const std::filesystem::path& file, const DocumentRules& rules, ReadCounts& counts,
                    const DocumentSink& sink, const std::function<void(std::int64_t)>& advanced) {
  Reader reader(file, rules, counts, sink, advanced);
  if (format_of(file, rules.format) == TextFormat::jsonl) return reader.jsonl();
  return rules.split_paragraphs ? reader.paragraphs() : reader.whole();
}

std::int64_t check_inputs(const std::vector<std::string>& files) {
  std::int64_t bytes = 0;
  for (const std::string& file : files) {
    struct stat info {};
    const std::string path = full_path(file);
    if (::stat(path.c_str(), &info) != 0) throw IoError(path, "cannot be read", errno);
    if (S_ISDIR(info.st_mode)) throw IoError(path + ": is a folder; name the files in it");
    if (::access(path.c_str(), R_OK) != 0) throw IoError(path, "cannot be read", errno);
    if (S_ISREG(info.st_mode)) bytes += info.st_size;
  }
  return bytes;
}

}  // namespace espalier::app
