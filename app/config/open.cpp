#include "config/open.hpp"

#include <cstdlib>
#include <filesystem>

#include "config/source.hpp"
#include "program.hpp"

namespace espalier::app {

namespace {

std::span<const OptionSpec> options_of_plugin(PluginHost& host, const PluginChoice& choice) {
  const LoadedPlugin& plugin = host.load(choice.plugin, choice.device);
  const Factory& factory = plugin.factory(choice.kind);
  return {factory.options, factory.option_count};
}

}  // namespace

std::unique_ptr<PluginHost> make_plugin_host(const std::string& recipe_file,
                                             const std::vector<std::string>& search_path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  folders.reserve(search_path.size());
  for (const std::string& folder : search_path) {
    if (!folder.empty()) folders.push_back(fs::absolute(folder));  // what is empty is complained of with the rest
  }
  const fs::path beside = recipe_file.empty() ? fs::path() : fs::absolute(recipe_file).parent_path();
  return std::make_unique<PluginHost>(plugin_search_path(beside, folders, installed_plugin_dir()));
}

OpenRecipe open_recipe(const RecipeRequest& request) {
  OpenRecipe opened;
  opened.recipe = load_recipe(request, [&](const PluginChoice& choice, const std::vector<std::string>& search_path) {
    if (opened.plugins == nullptr) opened.plugins = make_plugin_host(request.file, search_path);
    return options_of_plugin(*opened.plugins, choice);
  });
  if (opened.plugins == nullptr) opened.plugins = make_plugin_host(request.file, opened.recipe.plugin_search_path);
  return opened;
}

RecipeRequest recipe_request(const Args& args) {
  RecipeRequest request;
  request.file = args.string("RECIPE");
  request.overrides = args.strings("--set");
  if (const char* text = std::getenv(kSetVariable)) request.environment = text;
  return request;
}

}  // namespace espalier::app
