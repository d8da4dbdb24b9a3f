#pragma once

#include <span>
#include <string>
#include <string_view>

#include "espalier/config.hpp"

namespace espalier::app {

/// A table of the recipe as the trainer declares it: the one list that checks, `config keys` and docs/recipe.md come
/// from.
struct Section {
  const char* path;                  ///< "parallel.data"
  const char* help;                  ///< one line
  std::span<const OptionSpec> keys;  ///< the trainer's own keys
  const char* kind = nullptr;  ///< interface of the plugin the table names; its options are further keys. Null: none
};

/// In the order a recipe is best read.
std::span<const Section> sections();
const Section& section(std::string_view path);

/// What a key of another trainer (Megatron, DeepSpeed), or of an older recipe, is called here: "train.clip_grad" for
/// "gradient_clipping". Empty when the name is not known.
std::string_view other_name(std::string_view key);
/// The keys other_name knows, for nearest names.
std::span<const std::string_view> other_names();

/// Markdown: every table, key, type, default and help. docs/recipe.md holds it.
std::string reference_text();

}  // namespace espalier::app
