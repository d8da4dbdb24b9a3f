#include "text/tokenizers/tokenizer_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "espalier/error.hpp"
#include "text/tokenizers/byte_symbols.hpp"
#include "text/tokenizers/content.hpp"

namespace espalier::app {
namespace {

using Json = nlohmann::json;

std::string quoted(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t kMost = 160;
  if (text.size() > kMost) text = text.substr(0, kMost) + "…";
  return text;
}

/// Reads the parts of one file; each message names the file and the part.
class FileReader {
 public:
  FileReader(const Json& root, const std::string& name) : root_(root), name_(name) {}

  TokenizerFile run() {
    if (!root_.is_object()) fail("", "expected an object, found " + quoted(root_));
    read_vocabulary(member(root_, "model", "the file"));
    read_whole_pieces();
    read_added();
    check_ids();
    read_normalizer(optional(root_, "normalizer"), 0);
    read_pretokenizer(optional(root_, "pre_tokenizer"), "pre_tokenizer", 0);
    if (!byte_level_) {
      fail("pre_tokenizer",
           "has no ByteLevel step; only byte-level BPE is supported: " + quoted(optional(root_, "pre_tokenizer")));
    }
    check_decoder(optional(root_, "decoder"), 0);
    read_merges();
    return std::move(file_);
  }

 private:
  static constexpr int kDeepest = 16;  // sequences within sequences

  [[noreturn]] void fail(const std::string& part, const std::string& what) const {
    throw IoError(name_ + ": " + (part.empty() ? "" : part + ": ") + what);
  }
  const Json& member(const Json& object, const char* key, const std::string& of) const {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) fail("", fmt::format("{} has no \"{}\"", of, key));
    return *found;
  }
  static const Json& optional(const Json& object, const char* key) {
    static const Json kNull;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() ? kNull : *found;
  }
  bool boolean(const Json& object, const char* key, std::optional<bool> fallback, const std::string& part) const {
    const Json& value = optional(object, key);
    if (value.is_null() && fallback) return *fallback;
    if (!value.is_boolean()) fail(part, fmt::format("\"{}\" must be true or false, found {}", key, quoted(value)));
    return value.get<bool>();
  }
  std::string text(const Json& object, const char* key, const std::string& part) const {
    const Json& value = optional(object, key);
    if (!value.is_string()) fail(part, fmt::format("\"{}\" must be a string, found {}", key, quoted(value)));
    return value.get<std::string>();
  }

  // --- vocabulary
  // -----------------------------------------------------------------------------------------------------

  void read_vocabulary(const Json& model) {
    model_ = &model;
    const Json& type = optional(model, "type");  // files of old versions leave it out
    if (!type.is_null() && type != "BPE") {
      fail("model", "type " + quoted(type) + " is not supported, only \"BPE\" of byte-level symbols" +
                        (type == "Unigram" ? " (use the SentencePiece model the file was made from)" : ""));
    }
    const Json& dropout = optional(model, "dropout");
    if (!dropout.is_null() && dropout != 0.0)
      fail("model", "dropout " + quoted(dropout) + " is not supported: ids would be random");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = optional(model, key);
      if (!value.is_null() && value != "") fail("model", fmt::format("{} {} is not supported", key, quoted(value)));
    }
    const Json& vocab = member(model, "vocab", "model");
    if (!vocab.is_object()) fail("model.vocab", "expected an object of tokens and ids, found " + quoted(vocab));
    const Json& added = optional(root_, "added_tokens");
    tokens_.resize(vocab.size() + added.size());
    ids_.reserve(vocab.size());
    for (auto entry = vocab.begin(); entry != vocab.end(); ++entry) {
      const std::int32_t id = id_of(entry.value(), fmt::format("model.vocab: \"{}\"", entry.key()));
      const std::string& token = entry.key();
      if (tokens_[static_cast<std::size_t>(id)]) {
        fail("model.vocab",
             fmt::format("id {} belongs to both \"{}\" and \"{}\"", id, *tokens_[static_cast<std::size_t>(id)], token));
      }
      tokens_[static_cast<std::size_t>(id)] = token;
      ids_.emplace(token, id);
    }
  }

  /// Ids run from 0 without gaps, so none can be as large as the number of tokens.
  std::int32_t id_of(const Json& value, const std::string& part) const {
    if (!value.is_number_integer() || value < 0)
      fail(part, "expected an id, a whole number from 0, found " + quoted(value));
    if (value >= tokens_.size()) {
      fail(part, fmt::format("id {} is beyond the {} tokens of the file: ids must have no gaps", quoted(value),
                             tokens_.size()));
    }
    return value.get<std::int32_t>();
  }

  void read_whole_pieces() {
    if (!boolean(*model_, "ignore_merges", false, "model")) return;
    for (const auto& [token, id] : ids_) {
      if (auto bytes = bytes_of_symbols(token)) file_.whole.emplace(std::move(*bytes), id);
    }
  }

  void read_added() {
    const Json& list = optional(root_, "added_tokens");
    if (list.is_null()) return;
    if (!list.is_array()) fail("added_tokens", "expected a list, found " + quoted(list));
    std::unordered_map<std::string, std::size_t> seen;
    for (std::size_t k = 0; k < list.size(); ++k) {
      const std::string part = fmt::format("added_tokens[{}]", k);
      AddedToken token;
      token.content = text(list[k], "content", part);
      token.id = id_of(member(list[k], "id", part), part);
      token.special = boolean(list[k], "special", false, part);
      token.normalized = boolean(list[k], "normalized", !token.special, part);
      token.single_word = boolean(list[k], "single_word", false, part);
      token.left_strip = boolean(list[k], "lstrip", false, part);
      token.right_strip = boolean(list[k], "rstrip", false, part);
      if (token.content.empty()) fail(part, "the content is empty");
      if (!seen.emplace(token.content, k).second) fail(part, fmt::format("\"{}\" is listed twice", token.content));
      const auto known = ids_.find(token.content);
      if (known != ids_.end() && known->second != token.id) {
        fail(part, fmt::format("\"{}\" has id {}, but {} in the vocabulary", token.content, token.id, known->second));
      }
      auto& owner = tokens_[static_cast<std::size_t>(token.id)];
      if (owner && known == ids_.end())
        fail(part, fmt::format("id {} of \"{}\" belongs to \"{}\"", token.id, token.content, *owner));
      owner = token.content;
      file_.added.push_back(std::move(token));
    }
  }

  void check_ids() {
    while (!tokens_.empty() && !tokens_.back()) tokens_.pop_back();  // tokens listed in both places were counted twice
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (!tokens_[id]) {
        fail("model.vocab",
             fmt::format("no token has id {}, but the highest is {}: ids must have no gaps", id, tokens_.size() - 1));
      }
      file_.bytes_of_id.push_back(bytes_of_symbols(*tokens_[id]).value_or(*tokens_[id]));
    }
    for (const AddedToken& token : file_.added) file_.bytes_of_id[static_cast<std::size_t>(token.id)] = token.content;
    if (tokens_.empty()) fail("model.vocab", "is empty");
  }

  // --- merges
  // ---------------------------------------------------------------------------------------------------------

  void read_merges() {
    BytePairEncoder::ByteIds bytes{};
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::string symbol = symbols_of_bytes(std::string(1, static_cast<char>(byte)));
      const auto found = ids_.find(symbol);
      if (found == ids_.end()) {
        fail("model.vocab",
             fmt::format("has no token for byte 0x{:02X} (\"{}\"): not a byte-level vocabulary, or not a complete one",
                         byte, symbol));
      }
      bytes[byte] = found->second;
    }
    const Json& merges = member(*model_, "merges", "model");
    if (!merges.is_array()) fail("model.merges", "expected a list, found " + quoted(merges));
    MergeTable table(merges.size());
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string part = fmt::format("model.merges[{}]", rank);
      const Json& merge = merges[rank];
      if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
      const auto [left, right] = pair_of(merge, part);
      const std::uint32_t left_id = known(left, merge, part), right_id = known(right, merge, part);
      table.insert(left_id, right_id, {static_cast<std::uint32_t>(rank), known(left + right, merge, part)});
    }
    file_.encoder = std::make_shared<const BytePairEncoder>(bytes, std::move(table));
  }

  /// ["a", "b"], or "a b" in files of old versions.
  std::pair<std::string, std::string> pair_of(const Json& merge, const std::string& part) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    if (merge.is_string()) {
      const auto& line = merge.get_ref<const std::string&>();
      const std::size_t space = line.find(' ');
      if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos) {
        return {line.substr(0, space), line.substr(space + 1)};
      }
    }
    fail(part, "expected two tokens, [\"a\", \"b\"] or \"a b\", found " + quoted(merge));
  }

  std::uint32_t known(const std::string& token, const Json& merge, const std::string& part) const {
    const auto found = ids_.find(token);
    if (found == ids_.end())
      fail(part, fmt::format("{} needs \"{}\", which is not in the vocabulary", quoted(merge), token));
    return static_cast<std::uint32_t>(found->second);
  }

  // --- steps
  // ----------------------------------------------------------------------------------------------------------

  void read_normalizer(const Json& step, int depth) {
    if (step.is_null()) return;
    const std::string type = text(step, "type", "normalizer");
    using Form = Normalizer::Form;
    static const std::unordered_map<std::string, Form> kForms = {
        {"NFC", Form::nfc}, {"NFD", Form::nfd}, {"NFKC", Form::nfkc}, {"NFKD", Form::nfkd}};
    if (const auto form = kForms.find(type); form != kForms.end()) {
      file_.normalizer.add(form->second);
    } else if (type == "Sequence" && depth < kDeepest) {
      for (const Json& inner : list_of(step, "normalizers", "normalizer")) read_normalizer(inner, depth + 1);
    } else {
      fail("normalizer", quoted(step) + " is not supported (NFC, NFD, NFKC, NFKD and sequences of them are)");
    }
  }

  const Json& list_of(const Json& step, const char* key, const std::string& part) const {
    const Json& list = optional(step, key);
    if (!list.is_array()) fail(part, fmt::format("a Sequence needs a list \"{}\"", key));
    return list;
  }

  void read_pretokenizer(const Json& step, const std::string& part, int depth) {
    if (step.is_null()) return;
    const std::string type = text(step, "type", part);
    if (type == "Sequence" && depth < kDeepest) {
      for (const Json& inner : list_of(step, "pretokenizers", part)) read_pretokenizer(inner, part, depth + 1);
      return;
    }
    if (byte_level_) fail(part, quoted(step) + " after ByteLevel is not supported");
    if (type == "ByteLevel") {
      byte_level_ = true;
      if (boolean(step, "add_prefix_space", std::nullopt, part)) add({SplitStep::Kind::prefix_space, {}, false, {}});
      if (boolean(step, "use_regex", true, part)) add({SplitStep::Kind::gpt2, {}, false, {}});
    } else if (type == "Split") {
      read_split(step, part);
    } else if (type == "Digits") {
      const bool each = boolean(step, "individual_digits", false, part);
      add({each ? SplitStep::Kind::each_digit : SplitStep::Kind::digits, {}, false, {}});
    } else {
      fail(part, quoted(step) + " is not supported (ByteLevel, Split, Digits and sequences of them are)");
    }
  }

  void add(SplitStep step) { file_.pretokenizer.add(std::move(step)); }

  void read_split(const Json& step, const std::string& part) {
    using Behavior = SplitStep::Behavior;
    static const std::unordered_map<std::string, Behavior> kBehaviors = {
        {"Isolated", Behavior::isolated},
        {"Removed", Behavior::removed},
        {"MergedWithPrevious", Behavior::merged_with_previous},
        {"MergedWithNext", Behavior::merged_with_next},
        {"Contiguous", Behavior::contiguous}};
    SplitStep split;
    split.kind = SplitStep::Kind::pattern;
    const auto behavior = kBehaviors.find(text(step, "behavior", part));
    if (behavior == kBehaviors.end()) fail(part, "unknown behavior in " + quoted(step));
    split.behavior = behavior->second;
    split.invert = boolean(step, "invert", false, part);
    const Json& pattern = optional(step, "pattern");
    const Json& regex = optional(pattern, "Regex");
    const Json& literal = optional(pattern, "String");
    if (regex.is_string() == literal.is_string()) {
      fail(part, "\"pattern\" must be {\"Regex\": …} or {\"String\": …}, found " + quoted(pattern));
    }
    // Isolated pieces are matches and gaps alike, so inverting makes no difference.
    if (split.behavior == Behavior::isolated && (regex == kGpt2Pattern || regex == kBloomPattern)) {
      split.kind = regex == kGpt2Pattern ? SplitStep::Kind::gpt2 : SplitStep::Kind::bloom;
    } else {
      try {
        split.pattern = std::make_shared<const Pattern>(regex.is_string() ? translate_pattern(regex.get<std::string>())
                                                                          : quote_pattern(literal.get<std::string>()));
      } catch (const ConfigError& error) {
        fail(part, error.what());
      }
    }
    add(std::move(split));
  }

  void check_decoder(const Json& step, int depth) const {
    if (step.is_null()) return;
    const std::string type = text(step, "type", "decoder");
    if (type == "Sequence" && depth < kDeepest) {
      for (const Json& inner : list_of(step, "decoders", "decoder")) check_decoder(inner, depth + 1);
    } else if (type != "ByteLevel") {
      fail("decoder", quoted(step) + " is not supported (ByteLevel is)");
    }
  }

  const Json& root_;
  const std::string& name_;
  const Json* model_ = nullptr;
  bool byte_level_ = false;
  std::vector<std::optional<std::string>> tokens_;     // by id, as the file writes them
  std::unordered_map<std::string, std::int32_t> ids_;  // of the vocabulary
  TokenizerFile file_;
};

}  // namespace

TokenizerFile parse_tokenizer_file(const std::string& content, const std::string& name) {
  Json root;
  try {
    root = Json::parse(content);
  } catch (const Json::exception& error) {
    const std::string what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    const std::size_t start = what.find("] ");
    throw IoError(name + ": not JSON: " + (start == std::string::npos ? what : what.substr(start + 2)));
  }
  TokenizerFile file = FileReader(root, name).run();
  file.fingerprint = "tokenizer.json:" + content_hash(content);
  return file;
}

TokenizerFile read_tokenizer_file(const std::filesystem::path& file) {
  return parse_tokenizer_file(read_content(file), std::filesystem::absolute(file).lexically_normal().string());
}

}  // namespace espalier::app
