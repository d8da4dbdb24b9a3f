#pragma once

#include <memory>
#include <string_view>

#include "commands/command.hpp"
#include "config/load.hpp"
#include "espalier/communicator.hpp"
#include "host/plugin_host.hpp"

namespace espalier::app {

/// A checked recipe, and the host that has loaded its plugins.
struct OpenRecipe {
  Recipe recipe;
  std::unique_ptr<PluginHost> plugins;
};

/// A host that searches the recipe's folder, `plugins.search_path` (from the working directory), ESPALIER_PLUGIN_PATH
/// and the folder of the program's own plugins.
std::unique_ptr<PluginHost> make_plugin_host(const std::string& recipe_file,
                                             const std::vector<std::string>& search_path);

/// load_recipe with the options of real plugins, for the world that `request` names.
OpenRecipe open_recipe(const RecipeRequest& request);

/// The same for the world of a job: all ranks throw alike when any of them fails, or loaded something else. Collective.
OpenRecipe open_recipe(RecipeRequest request, Communicator& world);

/// What RECIPE and --set of a command, and the environment, ask for.
RecipeRequest recipe_request(const Args& args);

}  // namespace espalier::app
