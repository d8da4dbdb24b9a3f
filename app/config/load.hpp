#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "config/recipe.hpp"

namespace espalier::app {

struct RecipeRequest {
  std::string file;
  std::vector<std::string> overrides;  ///< --set
  std::string environment;             ///< value of ESPALIER_SET
  int world = 0;                       ///< ranks of the job; 0: the smallest that fits
  /// A provider of kernels for another device than the CPU may be missing here, since the recipe is for another machine: its
  /// options stay unchecked, and Recipe::unchecked says so.
  bool device_elsewhere = false;
  /// Nothing is trained: the batch sizes need not divide by the replicas of this world, and where the recipe of a run on fewer
  /// ranks has no plugin for a size, the one that comes with the program is taken.
  bool any_replicas = false;
  /// The file is the effective recipe of a run, which has every option written out: where `overrides` name another backend or
  /// device, those of the run's own backend are left out.
  bool saved = false;
  std::string text = {};  ///< TOML instead of what the file has, which is then only a name for messages
};

/// What a table's plugin declares, for the check of its options. Called for plugins, not for what is built in.
/// @throws PluginError when the plugin cannot be had: becomes one of the recipe's problems.
using OptionsOf =
    std::function<std::span<const OptionSpec>(const PluginChoice& choice, const std::vector<std::string>& search_path)>;

/// Whether the choice names what the program carries itself.
bool is_built_in(const PluginChoice& choice);

/// Reads a recipe, checks it whole, and fills in what follows from other keys.
/// @throws ConfigError with every problem, one a line; PluginError when missing or refused plugins are the only ones;
/// IoError when
///         the file cannot be read.
Recipe load_recipe(const RecipeRequest& request, const OptionsOf& options_of);

}  // namespace espalier::app
