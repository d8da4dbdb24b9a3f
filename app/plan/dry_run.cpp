#include "plan/dry_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/silent_world.hpp"
#include "session/session.hpp"
#include "telemetry/log.hpp"
#include "train/phase.hpp"

namespace espalier::app {
namespace {

// The arena's walk takes a time that grows with the square of what is live at once.
constexpr int kMostLayersWalked = 1000;
// Stages times layers that are looked at one by one: about a second's work.
constexpr std::int64_t kMostPlaces = 1'000'000;

/// Every walk that a run binds its executor for.
std::vector<Walk> walks_of(const Recipe& recipe, const RunFacts& facts, int stages) {
  std::vector<Walk> walks;
  const std::vector<std::int64_t>& pairs = facts.batch.micro_batches;
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    walks.push_back({Mode::train, pairs[i], facts.model.seq_length, static_cast<int>(pairs[i + 1])});
  }
  if (facts.batch.eval_runs > 0) {
    walks.push_back({Mode::forward_only, recipe.train.batch.micro_batch, facts.model.seq_length, stages});
  }
  return walks;
}

/// The recipe with the provider that a check can do without: the oracle, which needs no device.
Recipe on_the_oracle(Recipe recipe) {
  recipe.backend.choice.plugin = kBuiltInBackend;
  recipe.backend.choice.device = "cpu";
  recipe.backend.choice.options = {};
  recipe.backend.overrides.clear();
  return recipe;
}

/// `recipe.toml:12:3: ` for a message that starts with a table of the recipe, or the name of its plugin.
std::string place_of(const Recipe& recipe, std::string_view message) {
  for (const PluginChoice* choice : {&recipe.tensor.choice, &recipe.pipeline.choice, &recipe.data_parallel.choice,
                                     &recipe.optimizer, &recipe.backend.choice}) {
    const bool by_table = message.starts_with(choice->path + ":") || message.starts_with(choice->path + ".");
    const bool by_name = message.starts_with(choice->plugin + ":");
    if (!by_table && !by_name) continue;
    ConfigProblem problem{choice->source, by_table ? "" : choice->path, ""};
    return to_string(problem);
  }
  return "";
}

/// The error of a stage's rank, as a user of the recipe is told it.
[[noreturn]] void rethrow_placed(const Recipe& recipe, const Error& error, int rank) {
  std::string text = error.what();
  const std::string own = fmt::format("rank {}: ", rank);  // which rank found it out says nothing here
  if (text.starts_with(own)) text.erase(0, own.size());
  throw Error(error.exit_code(), place_of(recipe, text) + text);
}

class Dry {
 public:
  Dry(OpenRecipe& opened, DryRunReport& report) : opened_(opened), recipe_(opened.recipe), report_(report) {
    if (recipe_.backend.choice.device == "cpu") return;
    recipe_ = on_the_oracle(recipe_);
    const bool known = opened.recipe.unchecked.empty();
    if (known) {
      report.notes.push_back(
          fmt::format("a check starts no device: the limits of provider {} for device {} were not checked",
                      opened.recipe.backend.choice.plugin, opened.recipe.backend.choice.device));
    }
    report.notes.push_back("activations are those of the reference kernels; a device's attention may keep less");
  }

  void run(int stage) {
    Grid grid = recipe_.grid;
    grid.pipeline_rank = stage;
    SilentWorldUse use;
    const auto world = make_silent_world(grid, use);
    try {
      Session session(*world, recipe_, *opened_.plugins, {false, false, 0});
      plan(session, stage);
    } catch (const Error& error) {
      if (use.asked) throw NobodyAnswers{error.what()};
      rethrow_placed(opened_.recipe, error, world->rank());
    }
  }

  struct NobodyAnswers {
    std::string text;
  };

 private:
  void plan(Session& session, int stage) {
    const Executor& executor = session.executor();
    const std::vector<Walk> walks = walks_of(recipe_, session.facts(), session.pipeline().stages());
    StagePlan result;
    result.stage = stage;
    result.parts.assign(executor.parts().begin(), executor.parts().end());
    int layers = 0;
    for (const LayerRange& part : result.parts) layers += part.size();
    for (const LocalParameter& local : executor.parameters()) result.parameters += local.placement.local.elements();
    if (layers > kMostLayersWalked) {
      report_.activations_known = false;
      result.state = executor.state_bytes(walks, session.optimizer());
    } else {
      const MemoryNeeds needs = executor.memory_needs(walks, session.optimizer());
      result.state = needs.state;
      result.activations = needs.arena;
    }
    report_.stages.push_back(std::move(result));
  }

  OpenRecipe& opened_;
  Recipe recipe_;
  DryRunReport& report_;
};

}  // namespace

DryRunReport dry_run(OpenRecipe& opened) {
  DryRunReport report;
  report.notes = opened.recipe.unchecked;
  const int stages = opened.recipe.grid.pipeline;
  Dry dry(opened, report);
  try {
    start_log(0, 1, LogLevel::warning);
    dry.run(0);
    start_log(0, 1, LogLevel::error);  // the others would say the same
    const bool all = stages * (opened.recipe.model.layers + 2) <= kMostPlaces;
    for (int stage = all ? 1 : std::max(stages - 1, 1); stage < stages; ++stage) dry.run(stage);
    if (!all && stages > 2)
      report.notes.push_back("of very many stages and layers only the first and the last stage were looked at");
  } catch (const Dry::NobodyAnswers& refused) {
    report.stages.clear();
    report.notes.push_back("not checked further: a plugin communicates while it is made (" + refused.text + ")");
  }
  start_log(0, 1, LogLevel::info);
  if (!report.activations_known) {
    report.notes.push_back(
        fmt::format("activations were not computed: a stage has more than {} layers", kMostLayersWalked));
  }
  return report;
}

}  // namespace espalier::app
