#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "commands/commands.hpp"
#include "commands/plan_text.hpp"
#include "config/open.hpp"
#include "config/sections.hpp"
#include "espalier/error.hpp"
#include "model/parameters.hpp"
#include "plan/dry_run.hpp"

namespace espalier::app {

namespace {

constexpr ArgSpec kWorldArg{
    "--world",
    ArgType::integer,
    "ranks of the job the recipe is checked for; default: those of mpiexec, or the fewest that fit",
    false,
    nullptr,
    false,
    "N"};
constexpr ArgSpec kConfigArgs[] = {kRecipeArg, kSetArg, kWorldArg};

RecipeRequest request_of(const Args& args) {
  RecipeRequest request = recipe_request(args);
  request.device_elsewhere = true;
  if (args.has("--world")) {
    const std::int64_t world = args.integer("--world");
    if (world < 1 || world > 10'000'000) {
      throw ConfigError(fmt::format("command line: --world: expected 1 to 10000000 ranks, found {}", world));
    }
    request.world = static_cast<int>(world);
  } else if (const Launch launch = detect_launch(); launch.launched_tasks > 1) {
    request.world = launch.launched_tasks;
  }
  return request;
}

int run_check(const Args& args) {
  OpenRecipe opened = open_recipe(request_of(args));
  const Recipe& recipe = opened.recipe;
  const DryRunReport report = dry_run(opened);
  for (const std::string& warning : recipe.warnings) std::cout << "warning: " << warning << '\n';
  for (const std::string& note : report.notes) std::cout << "note: " << note << '\n';
  std::cout << fmt::format("{}: good; {} parameters, {}, {} steps\n", recipe.file,
                           grouped(count_parameters(recipe.model)), grid_text(recipe.grid),
                           grouped(recipe.train.train_steps));
  std::cout << "computed for a rank of each stage:\n" << stages_text(recipe, report, "");
  return 0;
}

std::string phase_text(const BatchPhase& phase) {
  return fmt::format("steps {} to {}: global batch {} = micro-batch {} × {} micro-batches × data {}",
                     phase.first_step + 1, phase.first_step + phase.steps, phase.batch.global_batch,
                     phase.batch.micro_batch, phase.batch.micro_batches,
                     phase.batch.global_batch / (phase.batch.micro_batch * phase.batch.micro_batches));
}

void explain_batches(const Recipe& recipe) {
  const auto phases = BatchSchedule(recipe.train.batch, recipe.grid.data).phases(recipe.train.train_samples);
  std::cout << fmt::format("#\n# batch plan: {} steps, {} phase{}\n", grouped(recipe.train.train_steps), phases.size(),
                           phases.size() == 1 ? "" : "s");
  // Of a long ramp its ends, and where the micro-batch size changes.
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const bool edge = i < 2 || i + 2 >= phases.size() || phases.size() <= 8;
    const bool change = i > 0 && phases[i].batch.micro_batch != phases[i - 1].batch.micro_batch;
    if (edge || change) {
      std::cout << "#   " << phase_text(phases[i]) << '\n';
    } else if (i == 2) {
      std::cout << "#   ...\n";
    }
  }
  const std::int64_t trained =
      phases.empty() ? 0 : phases.back().first_sample + phases.back().steps * phases.back().batch.global_batch;
  if (trained < recipe.train.train_samples) {
    std::cout << fmt::format("#   the last {} samples would be an incomplete batch and are left out\n",
                             recipe.train.train_samples - trained);
  }
}

/// Names that differ in the number of the block only are one: "h.*.mlp.dense_h_to_4h.weight".
std::string across_blocks(std::string_view name) {
  if (!name.starts_with("h.")) return std::string(name);
  return "h.*" + std::string(name.substr(name.find('.', 2)));
}

void explain_decay(const Recipe& recipe) {
  const ParameterList parameters(shape_of(recipe.model), [&](const Parameter& one) {
    return takes_weight_decay(recipe.train.weight_decay, one.name, one.shape.rank() >= 2);
  });
  for (const bool decays : {true, false}) {
    int count = 0;
    std::int64_t elements = 0;
    std::vector<std::string> names;
    for (const Parameter& one : parameters.all()) {
      if (one.decays != decays) continue;
      ++count;
      elements += one.shape.elements();
      const std::string name = across_blocks(one.name);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    std::cout << fmt::format("# {}weight decay: {} parameters, {} elements\n", decays ? "" : "no ", count,
                             grouped(elements));
    for (const std::string& name : names) std::cout << "#   " << name << '\n';
  }
}

void explain_grid(const Recipe& recipe, const DryRunReport& report) {
  std::cout << "# grid: " << grid_text(recipe.grid) << '\n' << groups_text(recipe.grid, "#   ");
  if (!report.stages.empty())
    std::cout << "# stages, and what a rank of each needs:\n" << stages_text(recipe, report, "#   ");
  for (const std::string& note : report.notes) std::cout << "# note: " << note << '\n';
}

int run_explain(const Args& args) {
  OpenRecipe opened = open_recipe(request_of(args));
  const Recipe& recipe = opened.recipe;
  std::cout << recipe.effective;
  std::cout << "\n# consumers: tables are the trainer's, except for the options of plugins:\n";
  for (const EffectiveKey& key : recipe.keys) {
    if (key.consumer == "trainer") continue;
    std::cout << fmt::format("#   {} → {}\n", key.key, key.consumer);
  }
  std::cout << "#\n# parameters: " << grouped(count_parameters(recipe.model)) << '\n';
  std::cout.flush();
  explain_grid(recipe, dry_run(opened));
  explain_batches(recipe);
  std::cout << "#\n";
  explain_decay(recipe);
  std::cout << "#\n# " << summary(recipe.train.rate, recipe.train.train_samples) << '\n';
  for (const std::string& warning : recipe.warnings) std::cout << "# warning: " << warning << '\n';
  return 0;
}

int run_keys(const Args&) {
  std::cout << reference_text();
  return 0;
}

}  // namespace

const Command kConfigCheck{
    "config check",
    "check a recipe whole, without training",
    "Reads the recipe, loads the plugins it names, and prints everything that is wrong with it, "
    "each with file, line and column;\n"
    "then assembles the run of each pipeline stage without a job: layers are cut, schedules proved, "
    "memory computed.\n"
    "Opens no data and no device; a provider of kernels for another device than the CPU may be missing.\n"
    "  trainer config check configs/quickstart.toml\n"
    "  trainer config check configs/bloom-176b.toml --world 384\n"
    "  trainer config check my.toml --set train.lr=3e-4 --set optimizer.plugin=optim_fp16",
    kConfigArgs,
    run_check,
    true};

const Command kConfigExplain{"config explain",
                             "print the effective recipe: values, sources, grid, batch plan, learning rate",
                             "What is printed is itself a recipe: each value is followed by where it came from "
                             "(command line > file > environment >\n"
                             "default), the summaries are comments.\n"
                             "  trainer config explain configs/bloom-176b.toml --world 384",
                             kConfigArgs,
                             run_explain,
                             true};

const Command kConfigKeys{"config keys",
                          "list every key of a recipe, with type, default and meaning",
                          "Markdown, as in docs/recipe.md. Options of plugins: trainer plugins inspect NAME.",
                          {},
                          run_keys,
                          true};

}  // namespace espalier::app
