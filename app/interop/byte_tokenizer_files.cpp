#include "interop/byte_tokenizer_files.hpp"

#include <nlohmann/json.hpp>

#include "text/byte_tokenizer.hpp"
#include "text/tokenizers/byte_symbols.hpp"

namespace espalier::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEnd = "<|endoftext|>";
constexpr const char* kPadding = "<|padding|>";

Json added(std::int32_t id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace

std::map<std::string, std::string> byte_tokenizer_files() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[symbols_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  vocabulary[kEnd] = ByteTokenizer::kEndOfDocument;
  vocabulary[kPadding] = ByteTokenizer::kPadding;
  const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", {added(ByteTokenizer::kEndOfDocument, kEnd), added(ByteTokenizer::kPadding, kPadding)}},
      {"normalizer", nullptr},
      {"pre_tokenizer", level},
      {"post_processor", nullptr},
      {"decoder", level},
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", Json::array()}}}};
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"clean_up_tokenization_spaces", false},
                       {"eos_token", kEnd},
                       {"pad_token", kPadding}};
  return {{"tokenizer.json", tokenizer.dump(1) + "\n"}, {"tokenizer_config.json", config.dump(1) + "\n"}};
}

}  // namespace espalier::app
