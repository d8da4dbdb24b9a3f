#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizers/huggingface_tokenizer.hpp"

namespace espalier::app::tokenizers_test {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

/// The fixture of BLOOM's kind: 1,000 ids.
inline Json bloom_file() {
  return Json::parse(std::ifstream(ESPALIER_FIXTURES_DIR "/model/tokenizer/bloom_tokenizer.json"));
}

inline std::unique_ptr<HuggingFaceTokenizer> make(const Json& file, const std::string& end_of_document = "") {
  return std::make_unique<HuggingFaceTokenizer>(parse_tokenizer_file(file.dump(), "test.json"), end_of_document);
}

inline Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

}  // namespace espalier::app::tokenizers_test
