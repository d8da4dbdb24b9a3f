// libFuzzer: lines of JSONL against a library, and files of text cut into pieces against themselves whole. The first byte
// says which, the second the size of the pieces. Whatever comes must be read or refused, and the same every way.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "espalier/error.hpp"
#include "text/json_text.hpp"
#include "text/pieces.hpp"
#include "text/utf8.hpp"

namespace {

using namespace espalier::app;

void require(bool holds) {
  if (!holds) std::abort();
}

/// What the library says about a line: its text, or why not.
void compare_line(std::string_view line) {
  if (find_invalid_utf8(line) != std::string_view::npos) return;  // the reader asks for valid UTF-8
  std::string text, again, language;
  const TextField field = read_text_field(line, "text", false, text);
  const TextField repaired = read_text_field(line, "text", true, again);
  require(find_invalid_utf8(again) == std::string_view::npos);
  require((field.fault == LineFault::broken_json) == (repaired.fault == LineFault::broken_json));
  const TextField both = read_text_and_language(line, "text", "lang", false, again, language);
  require(both.fault == field.fault || (field.fault == LineFault::none && both.fault == LineFault::no_language));
  // The library takes a zero for the end of the text, and drops a byte order mark, which here only the beginning of a file may have.
  if (line.find('\0') != std::string_view::npos || line.starts_with("\xEF\xBB\xBF")) {
    require(field.fault == LineFault::broken_json);
    return;
  }
  try {
    const auto json = nlohmann::json::parse(line);
    if (field.fault == LineFault::broken_json) {
      require(std::string_view(field.what) == "nested too deeply");
      return;
    }
    require((field.fault == LineFault::no_object) == !json.is_object());
    if (!json.is_object()) return;
    require((field.fault == LineFault::no_key) == !json.contains("text"));
    if (!json.contains("text")) return;
    require((field.fault == LineFault::no_string) == !json["text"].is_string());
    if (json["text"].is_string()) require(field.fault == LineFault::none && text == json["text"].get<std::string>());
  } catch (const nlohmann::json::out_of_range&) {
    // A number beyond double: no fault of a text.
  } catch (const nlohmann::json::exception&) {
    // The library takes no half of a surrogate pair; here it is a fault only within the text.
    require(field.fault == LineFault::broken_json || line.find("\\u") != std::string_view::npos);
  }
}

struct Seen {
  std::vector<std::string> documents;
  ReadCounts counts;
};

Seen read_all(const std::string& file, const DocumentRules& rules, std::int64_t piece_bytes) {
  Seen seen;
  PieceQueue queue({file}, rules, {0, 1, piece_bytes}, {});
  while (const auto piece = queue.next()) {
    read_piece(file, *piece, rules, seen.counts,
               [&](std::string_view text, std::string_view) { seen.documents.emplace_back(text); });
  }
  return seen;
}

/// `packed`: whatever the bytes say, plain or not.
void compare_pieces(std::string_view bytes, std::int64_t piece_bytes, bool jsonl) {
  const int file = ::memfd_create("fuzz", 0);
  require(file >= 0 && ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const std::string name = "/proc/self/fd/" + std::to_string(file);
  DocumentRules rules;
  rules.format = jsonl ? TextFormat::jsonl : TextFormat::text;
  rules.split_paragraphs = !jsonl;
  rules.skip_bad_lines = true;
  rules.longest = 200;
  try {
    const Seen whole = read_all(name, rules, std::int64_t{1} << 40), cut = read_all(name, rules, piece_bytes);
    require(whole.documents == cut.documents && whole.counts.lines == cut.counts.lines);
    require(whole.counts.skipped == cut.counts.skipped && whole.counts.bytes == cut.counts.bytes);
  } catch (const espalier::IoError&) {
    // Packed data that are damaged.
  }
  ::close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[0] % 3 == 0) {
    compare_line(rest);
  } else {
    // Small pieces, but not thousands: each has buffers of its own.
    const auto piece_bytes = static_cast<std::int64_t>(std::max<std::size_t>(1 + data[1], rest.size() / 16));
    compare_pieces(rest, piece_bytes, data[0] % 3 == 1);
  }
  return 0;
}
