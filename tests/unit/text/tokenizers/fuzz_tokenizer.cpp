// libFuzzer: a tokenizer.json, changes to a good one, split patterns and texts. The first byte says which of them the
// rest is; a byte 0xFF, which no valid UTF-8 has, ends the file and starts the text. Whatever comes must be read or
// refused, and texts must come back.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "espalier/error.hpp"
#include "text/tokenizers/huggingface_tokenizer.hpp"

namespace {

using namespace espalier::app;

const nlohmann::json& good_file() {
  static const nlohmann::json file = [] {
    const char* name = std::getenv("FUZZ_TOKENIZER");  // bloom_tokenizer.json of the fixtures
    return nlohmann::json::parse(std::ifstream(name == nullptr ? "tokenizer.json" : name));
  }();
  return file;
}

void encode_and_decode(const HuggingFaceTokenizer& tokenizer, const std::string& text, bool lossless) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  }
  if (lossless && tokenizer.decode(ids, true) != text) std::abort();
}

void fuzz_pattern(const std::string& pattern, const std::string& text) {
  std::vector<Span> matches;
  const Pattern compiled(translate_pattern(pattern));
  compiled.find_all(text, matches);
  std::size_t done = 0;
  for (const Span& match : matches) {
    if (match.begin < done || match.end < match.begin || match.end > text.size()) std::abort();
    done = match.end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t stop = rest.find('\xFF');
  const std::string first = rest.substr(0, stop);
  const std::string text = stop == std::string::npos ? "Hello wörld  <s>1\n" : rest.substr(stop + 1);
  static const HuggingFaceTokenizer tokenizer(parse_tokenizer_file(good_file().dump(), "good"), "");
  try {
    switch (data[0] % 4) {
      case 0:
        encode_and_decode(HuggingFaceTokenizer(parse_tokenizer_file(first, "fuzz"), ""), text, false);
        break;
      case 1: {
        auto patch = nlohmann::json::parse(first, nullptr, false);
        if (!patch.is_object()) break;
        auto file = good_file();
        file.merge_patch(patch);
        encode_and_decode(HuggingFaceTokenizer(parse_tokenizer_file(file.dump(), "fuzz"), ""), text, false);
        break;
      }
      case 2:
        fuzz_pattern(first, text);
        break;
      default:
        encode_and_decode(tokenizer, rest, true);
    }
  } catch (const espalier::Error&) {
    // Refused: that is fine.
  }
  return 0;
}
