#include "text/tokenizers/open.hpp"

#include <filesystem>

#include "espalier/error.hpp"
#include "text/tokenizers/huggingface_tokenizer.hpp"
#include "text/tokenizers/sentencepiece_tokenizer.hpp"

namespace espalier::app {
namespace {

std::filesystem::path file_of(const ConfigView& config, HostContext& host) {
  const std::filesystem::path file = config.string("file");
  if (file.empty()) config.fail("file", "is empty; name the tokenizer's file");
  const std::string& start = host.facts().recipe_dir;
  return file.is_absolute() || start.empty() ? file : std::filesystem::path(start) / file;
}

/// Puts file, line and key of the recipe in front of what is wrong with end_of_document.
template <class Make>
std::unique_ptr<Tokenizer> with_key(const ConfigView& config, const Make& make) {
  try {
    return make(config.string("end_of_document"));
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    constexpr std::string_view kKey = "end_of_document: ";
    config.fail("end_of_document", text.starts_with(kKey) ? text.substr(kKey.size()) : text);
  }
}

}  // namespace

std::span<const OptionSpec> tokenizer_options(std::string_view name) {
  if (name == kHuggingFaceTokenizer) return kHuggingFaceOptions;
  if (name == kSentencePieceTokenizer) return kSentencePieceOptions;
  return {};
}

std::unique_ptr<Tokenizer> make_huggingface_tokenizer(const ConfigView& config, HostContext& host) {
  return with_key(config, [&](const std::string& end) {
    return std::make_unique<HuggingFaceTokenizer>(read_tokenizer_file(file_of(config, host)), end);
  });
}

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const ConfigView& config, HostContext& host) {
  return with_key(config, [&](const std::string& end) {
    return std::make_unique<SentencePieceTokenizer>(file_of(config, host), end);
  });
}

bool names_tokenizer_file(std::string_view argument) {
  return argument.ends_with(".json") || argument.ends_with(".model");
}

std::unique_ptr<Tokenizer> open_tokenizer_file(const std::string& file) {
  if (file.ends_with(".model")) return std::make_unique<SentencePieceTokenizer>(file, "");
  if (file.ends_with(".json")) return std::make_unique<HuggingFaceTokenizer>(read_tokenizer_file(file), "");
  throw ConfigError(
      "\"" + file +
      "\" is no tokenizer file: expected a name that ends in .json (Hugging Face) or .model (SentencePiece)");
}

}  // namespace espalier::app
