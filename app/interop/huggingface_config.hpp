#pragma once

#include <filesystem>
#include <string>

#include "espalier/dtype.hpp"
#include "espalier/facts.hpp"
#include "interop/huggingface_names.hpp"

namespace espalier::app {

/// What config.json says of a model.
struct HuggingFaceConfig {
  Family family = Family::bloom;
  /// vocab and tokenizer_vocab are vocab_size; seq_length is GPT-2's n_positions, BLOOM's seq_length, or 0.
  ModelShape shape;
  std::string text;  ///< the whole file
};

/// @throws IoError naming file and key: another kind of model, a variant we do not compute, a value that makes no
/// sense.
HuggingFaceConfig read_huggingface_config(const std::filesystem::path& folder);

/// Name of the config.json that a converted checkpoint keeps: not config.json, which would make it a Hugging Face
/// folder.
inline constexpr const char* kKeptConfig = "huggingface_config.json";
/// Text of the one in a checkpoint's folder, "" where there is none. @throws IoError when it is no JSON object.
std::string kept_huggingface_config(const std::filesystem::path& checkpoint);

/// Special ids, as transformers wants them; -1: none.
struct SpecialIds {
  std::int32_t begin = -1, end = -1, padding = -1;
};

/// config.json for a model of this shape.
/// @param vocab  rows that are written.
/// @param original  text of the config.json that the model came with, whose other keys are kept; "" for none.
std::string huggingface_config_text(const ModelShape& shape, std::int64_t vocab, DType dtype, const SpecialIds& ids,
                                    const std::string& original);

}  // namespace espalier::app
