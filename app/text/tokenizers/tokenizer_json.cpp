#include <nlohmann/json.hpp>

#include "text/tokenizers/bpe_trainer.hpp"
#include "text/tokenizers/byte_symbols.hpp"

namespace espalier::app {
namespace {

using Json = nlohmann::ordered_json;

Json byte_level(bool prefix_space, bool trim, bool regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"trim_offsets", trim}, {"use_regex", regex}};
}

Json pretokenizer_of(SplitStep::Kind pattern) {
  if (pattern == SplitStep::Kind::gpt2) return byte_level(false, true, true);
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kBloomPattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false, true, false)})}};
}

Json added_tokens_of(const std::vector<std::string>& special) {
  Json added = Json::array();
  for (std::size_t id = 0; id < special.size(); ++id) {
    added.push_back({{"id", id},
                     {"content", special[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return added;
}

std::string quoted(const std::string& text) { return Json(text).dump(); }

}  // namespace

std::string tokenizer_json(const LearnedVocabulary& vocabulary, SplitStep::Kind pattern) {
  // The large lists are written by hand, an entry a line: an ordered_json object takes quadratic time to fill.
  const Json head = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens_of(vocabulary.special)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", pretokenizer_of(pattern)},
                     {"post_processor", byte_level(true, false, false)},
                     {"decoder", byte_level(true, true, true)}};
  std::string out = head.dump(1);
  out.resize(out.size() - 2);  // its closing "\n}"
  out +=
      ",\n \"model\": {\n  \"type\": \"BPE\",\n  \"dropout\": null,\n  \"unk_token\": null,\n"
      "  \"continuing_subword_prefix\": null,\n  \"end_of_word_suffix\": null,\n  \"fuse_unk\": false,\n"
      "  \"byte_fallback\": false,\n  \"ignore_merges\": false,\n  \"vocab\": {";
  std::size_t id = 0;
  const auto entry = [&](const std::string& token) {
    out += (id == 0 ? "\n   " : ",\n   ") + quoted(token) + ": " + std::to_string(id);
    ++id;
  };
  for (const std::string& token : vocabulary.special) entry(token);
  for (const std::string& token : vocabulary.tokens) entry(symbols_of_bytes(token));
  out += "\n  },\n  \"merges\": [";
  bool first = true;
  for (const auto& [left, right] : vocabulary.merges) {
    out +=
        (first ? "\n   [" : ",\n   [") + quoted(symbols_of_bytes(left)) + ", " + quoted(symbols_of_bytes(right)) + "]";
    first = false;
  }
  out += "\n  ]\n }\n}\n";
  return out;
}

}  // namespace espalier::app
