#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::app {

/// The files of a tokenizer that travel with a model, as transformers names them, that lie in a folder; sorted.
std::vector<std::filesystem::path> tokenizer_files_in(const std::filesystem::path& folder);

/// The files of the tokenizer that the recipe of a checkpoint names: what its [tokenizer] table points to, and what
/// lies beside it under a name of transformers. Paths that do not exist any more are left out.
std::vector<std::filesystem::path> tokenizer_files_of(const std::string& recipe);

/// A key's text in the recipe of a checkpoint; "" where it has none.
std::string string_in(const std::string& recipe, std::string_view section, std::string_view key);

}  // namespace espalier::app
