#include "config/load.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "config/checks.hpp"
#include "config/source.hpp"
#include "config/tables.hpp"
#include "espalier/error.hpp"
#include "espalier/plugin.hpp"
#include "host/plugin_host.hpp"
#include "text/completions_dataset.hpp"
#include "text/tokenizers/open.hpp"

namespace espalier::app {

namespace {

/// Checks the options of one choice. @returns whether its plugin could not be had.
bool check_choice(PluginChoice& choice, Tables& tables, Recipe& recipe, const OptionsOf& options_of,
                  bool device_elsewhere, std::vector<ConfigProblem>& problems) {
  if (!tables.has(choice.path + ".plugin")) return false;
  std::span<const OptionSpec> specs;
  if (is_built_in(choice)) {
    if (choice.kind == kKind<Tokenizer>) specs = tokenizer_options(choice.plugin);
    if (choice.kind == kKind<Dataset>) specs = dataset_options(choice.plugin);
  } else {
    try {
      specs = options_of(choice, recipe.plugin_search_path);
    } catch (const NoSuchVariant& error) {
      if (!device_elsewhere) {
        tables.complain(choice.path + ".plugin", error.what());
        return true;
      }
      recipe.unchecked.push_back("provider " + choice.plugin + " for device " + choice.device +
                                 " is not installed here: its options and limits were not checked");
      return false;
    } catch (const Error& error) {
      tables.complain(choice.path + ".plugin", error.what());
      return true;
    }
  }
  std::vector<std::string_view> host;
  for (const OptionSpec& spec : section(choice.path).keys) host.emplace_back(spec.name);
  check_options(choice.options, choice.path, specs, host, problems);
  return false;
}

/// @returns whether the plugin of one of [backend] overrides could not be had.
bool check_override(const std::string& family, const std::string& provider, Tables& tables, const Recipe& recipe,
                    const OptionsOf& options_of) {
  PluginChoice choice = recipe.backend.choice;
  choice.plugin = provider;
  choice.device = "cpu";
  if (is_built_in(choice)) return false;
  try {
    static_cast<void>(options_of(choice, recipe.plugin_search_path));
    return false;
  } catch (const Error& error) {
    tables.complain("backend.overrides", family + ": " + error.what());
    return true;
  }
}

const ConfigTable* backend_of(const ConfigTable& root) {
  const ConfigValue* value = root.find("backend");
  const auto* table = value == nullptr ? nullptr : std::get_if<std::shared_ptr<ConfigTable>>(&value->data);
  return table == nullptr ? nullptr : table->get();
}

/// Takes a saved recipe's options of [backend] out of `root` where the command line names another plugin or device.
void forget_other_backend(const RecipeRequest& request, ConfigTable& root) {
  std::vector<ConfigProblem> ignored;  // they are in `root`'s list already
  const ConfigTable before = read_sources(request.file, request.text, {}, "", ignored);
  const ConfigTable* saved = backend_of(before);
  if (saved == nullptr || backend_of(root) == nullptr) return;
  ConfigTable& now = *std::get<std::shared_ptr<ConfigTable>>(root.values.find("backend")->second.data);
  const auto differs = [&](std::string_view key) {
    const ConfigValue *a = saved->find(key), *b = now.find(key);
    return a != nullptr && b != nullptr && a->to_text() != b->to_text();
  };
  if (!differs("plugin") && !differs("device")) return;
  const std::span<const OptionSpec> kept = section("backend").keys;
  std::erase_if(now.values, [&](const auto& entry) {
    return entry.second.source.origin != "--set" &&
           std::ranges::none_of(kept, [&](const OptionSpec& spec) { return entry.first == spec.name; });
  });
}

}  // namespace

bool is_built_in(const PluginChoice& choice) {
  if (choice.kind == kKind<Backend>) return choice.plugin == kBuiltInBackend;
  if (choice.kind == kKind<Dataset>) {
    return choice.plugin == kBuiltInDataset || !dataset_options(choice.plugin).empty();
  }
  if (choice.kind == kKind<Tokenizer>) {
    return choice.plugin == kBuiltInTokenizer || !tokenizer_options(choice.plugin).empty();
  }
  return choice.kind != kKind<Optimizer> && choice.plugin == kBuiltInStrategy;
}

Recipe load_recipe(const RecipeRequest& request, const OptionsOf& options_of) {
  std::vector<ConfigProblem> problems;
  ConfigTable root = read_sources(request.file, request.text, request.overrides, request.environment, problems);
  // A file that is no TOML would only report everything in it as missing.
  throw_if_any(problems);
  if (request.saved) forget_other_backend(request, root);

  Tables tables(std::move(root), problems);
  Recipe recipe;
  recipe.file = request.file;
  fill_model(tables, recipe);
  fill_grid(tables, request.world, request.any_replicas, recipe);
  const Grid grid = recipe.grid;
  if (request.any_replicas) recipe.grid.data = 1;
  fill_batch(tables, recipe);
  recipe.grid = grid;
  fill_rate(tables, recipe);
  fill_rest(tables, recipe);
  check_decay(tables, recipe);

  std::size_t missing_plugins = 0;
  for (PluginChoice* choice : {&recipe.optimizer, &recipe.data, &recipe.tokenizer, &recipe.backend.choice,
                               &recipe.tensor.choice, &recipe.pipeline.choice, &recipe.data_parallel.choice}) {
    missing_plugins += check_choice(*choice, tables, recipe, options_of, request.device_elsewhere, problems) ? 1 : 0;
  }
  for (const auto& [family, provider] : recipe.backend.overrides) {
    missing_plugins += check_override(family, provider, tables, recipe, options_of) ? 1 : 0;
  }
  if (missing_plugins > 0 && missing_plugins == problems.size()) {
    try {
      throw_if_any(problems);
    } catch (const ConfigError& error) {
      throw PluginError(error.what());
    }
  }
  throw_if_any(problems);
  fill_effective(tables, recipe);
  return recipe;
}

}  // namespace espalier::app
