#include <filesystem>
#include <string>

#include "config/checks.hpp"

namespace espalier::app {

namespace {

PluginChoice choice_of(Tables& tables, const std::string& path) {
  PluginChoice choice;
  choice.kind = section(path).kind;
  choice.path = path;
  choice.plugin = tables.string(path + ".plugin");
  choice.options = tables.options(path);
  choice.source = tables.source(path + ".plugin");
  return choice;
}

/// What is set for something that the recipe switches off. The recipe that is saved with a checkpoint has every default
/// in it: only what differs is a wish.
void warn_of_no_effect(const Tables& tables, Recipe& recipe) {
  const EvalSection& eval = recipe.eval;
  const auto warn = [&](const char* text) { recipe.warnings.emplace_back(text); };
  if (tables.has("eval.samples") && eval.samples != 0 && eval.interval == 0 && !eval.at_start && !eval.at_end) {
    warn("eval.samples has no effect: nothing is evaluated without eval.interval, at_start or at_end");
  }
  if (tables.has("debug.collective_timeout") && recipe.debug.collective_timeout != 300 &&
      !recipe.debug.check_collectives) {
    warn("debug.collective_timeout has no effect without debug.check_collectives = true");
  }
}

}  // namespace

void fill_rest(Tables& tables, Recipe& recipe) {
  namespace fs = std::filesystem;
  std::error_code error;
  recipe.base_dir = fs::current_path(error).string();
  recipe.run_dir = tables.string("run.dir", "runs/" + fs::path(recipe.file).stem().string());
  recipe.plugin_search_path = tables.strings("plugins.search_path");

  TrainSection& train = recipe.train;
  train.seed = static_cast<std::uint64_t>(tables.integer("train.seed"));
  train.clip_grad = tables.number("train.clip_grad");
  const std::string recompute = tables.string("train.recompute");
  train.recompute = recompute == "full"        ? Recompute::full
                    : recompute == "selective" ? Recompute::selective
                                               : Recompute::none;
  train.exit_duration_in_mins = tables.number("train.exit_duration_in_mins");
  train.exit_interval = tables.integer("train.exit_interval");
  train.nan_policy = tables.string("train.nan_policy") == "stop" ? NanPolicy::stop : NanPolicy::skip;
  train.max_skipped = tables.integer("train.max_skipped");
  train.eod_mask_loss = tables.boolean("train.eod_mask_loss");
  train.threads = static_cast<int>(tables.integer("train.threads"));
  train.weight_decay = {tables.strings("train.no_weight_decay"), tables.strings("train.weight_decay_also")};

  recipe.optimizer = choice_of(tables, "optimizer");
  recipe.data = choice_of(tables, "data");
  recipe.tokenizer = choice_of(tables, "tokenizer");
  recipe.backend.choice = choice_of(tables, "backend");
  recipe.backend.choice.device = tables.string("backend.device", "cpu");
  if (recipe.backend.choice.plugin == kBuiltInBackend && recipe.backend.choice.device != "cpu") {
    tables.complain("backend.device", "\"" + recipe.backend.choice.device +
                                          "\": plugin \"reference\" computes on the CPU only; name another plugin, as "
                                          "plugin = \"kernels_fused\", or leave device out");
  }
  if (tables.has("backend.overrides")) {
    const ConfigView overrides = tables.view("backend").table("overrides");
    for (const char* family : {"matrix", "attention", "norm", "elementwise", "loss", "update", "random"}) {
      if (overrides.has(family)) recipe.backend.overrides[family] = overrides.string(family);
    }
  }
  recipe.tensor = {choice_of(tables, "parallel.tensor"), recipe.grid.tensor};
  recipe.pipeline = {choice_of(tables, "parallel.pipeline"), recipe.grid.pipeline};
  recipe.data_parallel = {choice_of(tables, "parallel.data"), recipe.grid.data};

  recipe.eval = {tables.integer("eval.interval"), tables.integer("eval.samples"), tables.boolean("eval.at_start"),
                 tables.boolean("eval.at_end")};

  CheckpointSection& checkpoint = recipe.checkpoint;
  checkpoint.save = tables.string("checkpoint.save", recipe.run_dir + "/checkpoints");
  checkpoint.load = tables.string("checkpoint.load", "auto");
  checkpoint.load_optimizer = tables.string("checkpoint.load_optimizer", "strict");
  checkpoint.load_model = tables.string("checkpoint.load_model", "");
  if (!checkpoint.load_model.empty() && checkpoint.load != "auto") {
    tables.complain("checkpoint.load_model",
                    "is where to start when checkpoint.load = \"auto\" finds nothing, but load is \"" +
                        checkpoint.load + "\"; give one of the two");
  }
  if (checkpoint.load == "none" && tables.has("checkpoint.load_optimizer") && checkpoint.load_optimizer != "strict") {
    tables.complain("checkpoint.load_optimizer", "\"" + checkpoint.load_optimizer +
                                                     "\" says how state is loaded, but checkpoint.load = \"none\" "
                                                     "loads nothing; give one of the two");
  }
  checkpoint.save_interval = tables.integer("checkpoint.save_interval");
  checkpoint.keep = tables.integer("checkpoint.keep");
  checkpoint.async = tables.boolean("checkpoint.async");

  recipe.log = {tables.integer("log.interval", 1), tables.string("log.file", recipe.run_dir + "/train.log"),
                tables.string("log.metrics", recipe.run_dir + "/metrics.jsonl"), tables.string("log.level", "info")};

  const auto plain = [](const std::string& path) { return std::filesystem::path(path).lexically_normal(); };
  if (plain(recipe.log.file) == plain(recipe.log.metrics))
    tables.complain("log.metrics", "\"" + recipe.log.metrics + "\" is log.file, too: lines of text between objects; give two files");

  recipe.guard = {tables.integer("guard.interval"),
                  tables.string("guard.action") == "repair" ? GuardAction::repair : GuardAction::stop};

  if (recipe.guard.action == GuardAction::repair && tables.has("guard.interval") && recipe.guard.interval == 0) {
    tables.complain("guard.action", "\"repair\" with interval = 0: nothing is compared, so nothing can be repaired");
  }

  recipe.debug = {tables.boolean("debug.compare_recipes"), tables.boolean("debug.check_collectives"),
                  tables.number("debug.collective_timeout")};

  warn_of_no_effect(tables, recipe);
  for (const std::string& folder : recipe.plugin_search_path) {
    if (folder.empty()) tables.complain("plugins.search_path", "expected folders, found \"\"");
  }
  for (const char* key :
       {"run.dir", "checkpoint.save", "checkpoint.load", "checkpoint.load_model", "log.file", "log.metrics"}) {
    if (tables.given(key) && tables.string(key).empty()) tables.complain(key, "expected a path, found \"\"");
  }
}

}  // namespace espalier::app
