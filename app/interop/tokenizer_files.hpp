#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace espalier::app {

/// The files of a tokenizer that travel with a model, as transformers names them, that lie in a folder; sorted.
std::vector<std::filesystem::path> tokenizer_files_in(const std::filesystem::path& folder);

/// The files of the tokenizer that the recipe of a checkpoint names: what its [tokenizer] table points to, and what
/// lies beside it under a name of transformers. Paths that do not exist any more are left out.
std::vector<std::filesystem::path> tokenizer_files_of(const std::string& recipe);

/// The name of the plugin that the recipe of a checkpoint has for its tokenizer.
std::string tokenizer_plugin_of(const std::string& recipe);

}  // namespace espalier::app
