#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizers/added_tokens.hpp"
#include "text/tokenizers/bpe.hpp"
#include "text/tokenizers/normalizer.hpp"
#include "text/tokenizers/pretokenizer.hpp"

namespace espalier::app {

/// Lets a map of strings be asked for a string_view.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using IdsByText = std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>>;

/// What a tokenizer.json of a byte-level BPE says, checked: every id below vocab_size() has exactly one token.
struct TokenizerFile {
  std::vector<std::string> bytes_of_id;  ///< what each id decodes to
  std::vector<AddedToken> added;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  std::shared_ptr<const BytePairEncoder> encoder;
  IdsByText whole;          ///< of a file that ignores merges: pieces (bytes) that are a token, whatever the merges say
  std::string fingerprint;  ///< "tokenizer.json:" and the XXH3 of the file's bytes
};

/// Reads a file of Hugging Face's tokenizers. docs/tokenizers.md lists what is supported; `truncation`, `padding` and a
/// `post_processor` are of no concern to text and ids and not applied.
/// @throws IoError with the file's full path and the part of it that is malformed or not supported, in one line.
TokenizerFile read_tokenizer_file(const std::filesystem::path& file);

/// The same from memory; `name` stands for the file in messages.
TokenizerFile parse_tokenizer_file(const std::string& content, const std::string& name);

}  // namespace espalier::app
