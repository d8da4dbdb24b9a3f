#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "espalier/config.hpp"
#include "espalier/host.hpp"
#include "espalier/tokenizer.hpp"

namespace espalier::app {

/// Names that recipes use for the tokenizers that are read from files.
inline constexpr std::string_view kHuggingFaceTokenizer = "huggingface";
inline constexpr std::string_view kSentencePieceTokenizer = "sentencepiece";

inline constexpr OptionSpec kHuggingFaceOptions[] = {
    {"file", OptionType::string, nullptr, "the tokenizer.json, from the working directory"},
    {"end_of_document", OptionType::string, "\"\"",
     "the token that ends documents; \"\": the first of </s>, <|endoftext|>, <|end_of_text|>, <eos> that was added"},
};
inline constexpr OptionSpec kSentencePieceOptions[] = {
    {"file", OptionType::string, nullptr, "the model, from the working directory"},
    {"end_of_document", OptionType::string, "\"\"", "the piece that ends documents; \"\": the model's end of sentence"},
};

/// Options of a built-in tokenizer by its name; none for a name that has none.
std::span<const OptionSpec> tokenizer_options(std::string_view name);

/// Factories of the built-in plugins. @throws ConfigError naming the key; IoError naming the file.
std::unique_ptr<Tokenizer> make_huggingface_tokenizer(const ConfigView& config, HostContext& host);
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const ConfigView& config, HostContext& host);

/// Whether a command's argument names a file (*.json, *.model) rather than a plugin.
bool names_tokenizer_file(std::string_view argument);

/// A tokenizer for a file: tokenizer.json by the ending .json, a SentencePiece model by .model.
/// @throws ConfigError for another ending; IoError for a file that is none.
std::unique_ptr<Tokenizer> open_tokenizer_file(const std::string& file);

}  // namespace espalier::app
