// MB/s of what `trainer preprocess` does to a line before the tokenizer: valid UTF-8, and the text out of JSON. The
// last two have text that is escaped character by character, as Python's json.dumps writes all but English.
#include <benchmark/benchmark.h>

#include <string>

#include "text/json_text.hpp"
#include "text/utf8.hpp"

namespace {

using namespace espalier::app;

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

const std::string kEnglish =
    "Options that change what is shown: see the manual.\\n\\tThe file is read once, then \\\"closed\\\". ";
const std::string kMixed =
    "Les fichiers sont lus une fois, puis ferm\xC3\xA9s. "
    "\xE6\x96\x87\xE4\xBB\xB6\xE5\x8F\xAA\xE8\xAF\xBB\xE4\xB8\x80\xE6\xAC\xA1\xE3\x80\x82 ";
const std::string kEscaped = "\\u6587\\u4ef6\\u53ea\\u8bfb\\u4e00\\u6b21\\u3002 ferm\\u00e9s ";

void json_line(benchmark::State& state, const std::string& part, std::size_t bytes) {
  const std::string line =
      R"({"id": 17, "url": "https://example.org/a/b?c=d", "meta": {"tags": ["x", "y"], "score": 0.25}, "text": ")" +
      repeated(part, bytes) + "\"}";
  std::string text;
  for (auto _ : state) {
    benchmark::DoNotOptimize(find_invalid_utf8(line));
    benchmark::DoNotOptimize(read_text_field(line, "text", false, text));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * line.size()));
}
BENCHMARK_CAPTURE(json_line, english_300, kEnglish, 300);
BENCHMARK_CAPTURE(json_line, english_5000, kEnglish, 5000);
BENCHMARK_CAPTURE(json_line, mixed_5000, kMixed, 5000);
BENCHMARK_CAPTURE(json_line, escaped_300, kEscaped, 300);
BENCHMARK_CAPTURE(json_line, escaped_5000, kEscaped, 5000);

}  // namespace
