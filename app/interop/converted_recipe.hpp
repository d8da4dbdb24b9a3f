#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "espalier/facts.hpp"

namespace espalier::app {

/// A recipe for a checkpoint made of somebody else's weights, so that `generate`, `eval` and `numerics` can open it:
/// the model's shape, one rank, FP32, and no training to speak of. To train on, a recipe of one's own names the
/// checkpoint.
/// @param tokenizer  its [tokenizer]; "" for none.
std::string converted_recipe(const ModelShape& shape, const std::string& origin, const std::string& tokenizer);

/// Keys of a [tokenizer] for the tokenizer.json or SentencePiece model among the files, as it will lie in a folder; ""
/// where there is none.
std::string tokenizer_section(const std::vector<std::filesystem::path>& files, const std::filesystem::path& folder);

}  // namespace espalier::app
