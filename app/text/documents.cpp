#include "text/documents.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>

#include "espalier/error.hpp"
#include "text/byte_source.hpp"
#include "text/line_reader.hpp"
#include "text/pieces.hpp"
#include "text/utf8.hpp"

namespace espalier::app {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string_view text) : text_(text) {}
  std::size_t read(char* to, std::size_t bytes) override {
    const std::size_t count = std::min(bytes, text_.size());
    std::memcpy(to, text_.data(), count);
    text_.remove_prefix(count);
    return count;
  }
  std::int64_t file_bytes() const override { return 0; }

 private:
  std::string_view text_;
};

std::unique_ptr<ByteSource> source_of(const std::filesystem::path& file, const Piece& piece) {
  if (piece.text) return std::make_unique<MemorySource>(*piece.text);
  return open_plain(file, std::max<std::int64_t>(piece.begin - 1, 0));
}

/// Line ends before a byte of a file: read only to say where a fault is.
std::int64_t lines_before(const std::filesystem::path& file, std::int64_t offset) {
  const auto source = open_plain(file);
  std::string block(std::size_t{1} << 20, '\0');
  std::int64_t lines = 0;
  while (offset > 0) {
    const std::size_t got =
        source->read(block.data(), static_cast<std::size_t>(std::min<std::int64_t>(offset, std::ssize(block))));
    if (got == 0) break;
    lines += std::count(block.data(), block.data() + got, '\n');
    offset -= static_cast<std::int64_t>(got);
  }
  return lines;
}

bool is_blank(const LineReader::Line& line) {
  return !line.too_long && line.text.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string shown_byte(unsigned char byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("byte ") + kDigits[byte >> 4] + kDigits[byte & 15];
}

class Reader {
 public:
  Reader(const std::filesystem::path& file, const Piece& piece, const DocumentRules& rules, ReadCounts& counts,
         const DocumentSink& sink)
      : file_(file),
        piece_(piece),
        rules_(rules),
        counts_(counts),
        sink_(sink),
        source_(source_of(file, piece)),
        lines_(*source_, std::max<std::int64_t>(piece.begin - 1, 0), rules.longest) {
    if (piece.number == 0) lines_.skip_if(kByteOrderMark);
    end_ = std::max(piece.end, lines_.position() + (piece.number == 0 ? 1 : 0));  // the first line is the first piece's
  }

  void jsonl() {
    if (piece_.begin > 0 && !lines_.skip_line(end_)) return;
    while (lines_.position() < end_) {
      const auto line = lines_.next();
      if (!line || line->start >= end_) return;  // the latter: what came before was too long
      if (is_blank(*line)) {
        ++counts_.blank_lines;
        continue;
      }
      ++counts_.lines;
      if (line->too_long) {
        too_long(lines_.number(), "a line");
      } else if (const auto good = checked(line->text, lines_.number())) {
        object(*good);
      }
    }
  }

  void whole() {
    const LineReader::Line all = lines_.rest();
    if (all.too_long) return too_long(1, "a document");
    if (const auto good = checked(all.text, 1)) sink_(*good, {});
  }

  void paragraphs() {
    if (piece_.begin > 0 && !skip_to_border()) return;
    std::string paragraph;
    std::int64_t first = 0;
    bool long_one = false;
    const auto end = [&] {
      if (first == 0) return;
      if (!long_one) paragraph.pop_back();  // the last line end belongs to the border
      if (!long_one && std::ssize(paragraph) <= rules_.longest) {
        if (const auto good = checked(paragraph, first)) sink_(*good, {});
      } else {
        too_long(first, "a paragraph");
      }
      paragraph.clear();
      first = 0;
      long_one = false;
    };
    while (const auto line = lines_.next()) {
      if (is_blank(*line)) {
        if (line->start >= end_) break;
        end();
        continue;
      }
      if (first == 0) first = lines_.number();
      long_one = long_one || line->too_long || std::ssize(paragraph) > rules_.longest;
      if (long_one) continue;
      paragraph.append(line->text);
      paragraph += '\n';
    }
    end();
  }

 private:
  /// To the first blank line that begins in the piece; false when none does.
  bool skip_to_border() {
    if (!lines_.skip_line(end_)) return false;
    while (lines_.position() < end_) {
      const auto line = lines_.next();
      if (!line) return false;
      if (is_blank(*line)) return true;
    }
    return false;
  }

  void object(std::string_view line) {
    const TextField field =
        rules_.language_key.empty()
            ? read_text_field(line, rules_.key, rules_.repair_characters, text_)
            : read_text_and_language(line, rules_.key, rules_.language_key, rules_.repair_characters, text_, language_);
    if (field.fault == LineFault::none) {
      counts_.replaced += field.replaced;
      sink_(text_, language_);
    } else {
      fault(field.fault, lines_.number(), explain(field));
    }
  }

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

  void too_long(std::int64_t line, const std::string& what) {
    std::string text = what + " of more than " + std::to_string(rules_.longest) + " bytes";
    if (rules_.offers_options) {
      text += "; --max-document-bytes allows more";
      if (what == "a document") text += ", --split-paragraphs cuts at blank lines";
    }
    fault(LineFault::too_long, line, text);
  }

  std::string explain(const TextField& field) const {
    const std::string position = "position " + std::to_string(field.at + 1);
    if (field.fault == LineFault::broken_json) return "not JSON: " + std::string(field.what) + " at " + position;
    if (field.fault == LineFault::bad_characters) {
      return "half of a surrogate pair at " + position + " is no character" +
             (rules_.offers_options ? "; replace such halves with --bad-characters replace" : "");
    }
    if (field.fault == LineFault::no_object) return "not an object; expected {\"" + rules_.key + "\": …}";
    if (field.fault == LineFault::no_key)
      return "an object " + describe(field.fault, rules_.key) + " (--key names another key)";
    if (field.fault == LineFault::no_language) {
      return "\"" + rules_.language_key +
             "\" names no language; expected a string of 1 to 64 letters, digits, - or _, found \"" +
             language_.substr(0, 80) + "\"";
    }
    return describe(field.fault, rules_.key);
  }

  /// @param line  in the piece, from 1.
  void fault(LineFault what, std::int64_t line, const std::string& text) {
    if (!rules_.skip_bad_lines) {
      const std::int64_t before = piece_.text ? piece_.lines_before : lines_before(file_, piece_.begin - 1);
      throw IoError(full_path(file_) + ":" + std::to_string(before + line) + ": " + text +
                    (rules_.offers_options ? "; --on-bad-line skip goes on without such lines" : ""));
    }
    ++counts_.skipped[static_cast<std::size_t>(what)];
  }

  const std::filesystem::path& file_;
  const Piece& piece_;
  std::int64_t end_ = 0;  // what begins before it is the piece's
  const DocumentRules& rules_;
  ReadCounts& counts_;
  const DocumentSink& sink_;
  std::unique_ptr<ByteSource> source_;
  LineReader lines_;
  std::string text_, language_, repaired_;
};

}  // namespace

TextFormat format_of(const std::filesystem::path& file, TextFormat asked) {
  if (asked != TextFormat::automatic) return asked;
  const std::string extension = unpacked_name(file).extension().string();
  return extension == ".jsonl" || extension == ".ndjson" || extension == ".json" ? TextFormat::jsonl : TextFormat::text;
}

std::int64_t ReadCounts::all_skipped() const {
  return std::accumulate(skipped.begin(), skipped.end(), std::int64_t{0});
}

void ReadCounts::add(const ReadCounts& other) {
  bytes += other.bytes;
  lines += other.lines;
  blank_lines += other.blank_lines;
  replaced += other.replaced;
  for (std::size_t fault = 0; fault < skipped.size(); ++fault) skipped[fault] += other.skipped[fault];
}

void read_piece(const std::filesystem::path& file, const Piece& piece, const DocumentRules& rules, ReadCounts& counts,
                const DocumentSink& sink) {
  counts.bytes += piece.file_bytes;
  Reader reader(file, piece, rules, counts, sink);
  if (format_of(file, rules.format) == TextFormat::jsonl) return reader.jsonl();
  return rules.split_paragraphs ? reader.paragraphs() : reader.whole();
}

void read_documents(const std::string& file, const DocumentRules& rules, ReadCounts& counts, const DocumentSink& sink,
                    const std::function<void(std::int64_t)>& advanced) {
  PieceQueue pieces({file}, rules, {}, {});
  while (const auto piece = pieces.next()) {
    read_piece(file, *piece, rules, counts, sink);
    advanced(piece->file_bytes);
  }
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
