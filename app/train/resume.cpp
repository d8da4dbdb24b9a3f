#include "train/resume.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>

#include "config/toml.hpp"
#include "espalier/error.hpp"

namespace espalier::app {
namespace {

void refuse_other_run(const Manifest& saved, std::string_view what, const std::string& before, const std::string& now) {
  if (before.empty() || before == now) return;
  throw IoError(fmt::format("checkpoint of step {}: {} was {}, now {}; continuing would silently change the run. Start another run "
                            "(run.dir), or set checkpoint.load = \"none\"",
                            saved.train.step, what, before, now));
}

/// The plugin's word: a recipe may name it by path, and the path may move.
std::string plugin_word(const std::string& plugin) {
  if (plugin.find('/') == std::string::npos) return plugin;
  const std::string stem = std::filesystem::path(plugin).stem().string();
  return stem.starts_with("lib") ? stem.substr(3) : stem;
}

using Keys = std::map<std::string, std::string>;

/// Dotted key and value, as text, of everything in the tables that shape what is learned.
Keys keys_of(const std::string& recipe) {
  // How far and how fast a run goes on one machine, and the seed, which is compared by itself.
  static const std::set<std::string, std::less<>> kOwnAffair = {"train.exit_duration_in_mins", "train.exit_interval", "train.threads",
                                                                "train.seed", "train.max_skipped", "model.expect_params"};
  std::vector<ConfigProblem> problems;
  const ConfigTable all = parse_toml(recipe, "", "checkpoint", problems);
  Keys keys;
  for (const char* section : {"model", "train", "optimizer"}) {
    const ConfigValue* found = all.find(section);
    if (found == nullptr) continue;
    const auto* table = std::get_if<std::shared_ptr<ConfigTable>>(&found->data);
    if (table == nullptr) continue;
    for (const auto& [name, value] : (*table)->values) {
      const std::string key = std::string(section) + "." + name;
      if (!kOwnAffair.contains(key)) keys[key] = value.to_text();
    }
  }
  return keys;
}

/// train.train_samples of the recipe that a checkpoint keeps, "" without it.
std::string samples_of(const Manifest& manifest) {
  const Keys keys = keys_of(manifest.recipe);
  const auto found = keys.find("train.train_samples");
  return found == keys.end() ? std::string() : found->second;
}

std::string grid_text(const Grid& grid) {
  return fmt::format("tensor {} x pipeline {} x data {}", grid.tensor, grid.pipeline, grid.data);
}

}  // namespace

void check_same_run(const Manifest& saved, const Manifest& now, const DataOrder& order) {
  // The seed and the length of a sample come first: they change the fingerprint of the data, too, and say why.
  refuse_other_run(saved, "train.seed", std::to_string(saved.seed), std::to_string(now.seed));
  refuse_other_run(saved, "model.seq_length", std::to_string(saved.model.seq_length), std::to_string(now.model.seq_length));
  refuse_other_run(saved, "the tokenizer", saved.tokenizer, now.tokenizer);
  if (order.continues) return;
  const std::string before = samples_of(saved), samples = samples_of(now);
  if (order.takes_more_plans && saved.data_fingerprint != now.data_fingerprint && !before.empty() && before != samples) {
    throw IoError(fmt::format("checkpoint of step {}: the order of its data was planned for {} training samples; planned for {} it is another "
                              "one (unless the data changed, too). To keep it and plan the rest on top add {} to data.planned_samples, or "
                              "start another run (run.dir)",
                              saved.train.step, before, samples, before));
  }
  refuse_other_run(saved, "the data (fingerprint)", saved.data_fingerprint, now.data_fingerprint);
}

void check_same_optimizer(const Manifest& saved, const Manifest& now) {
  if (saved.optimizer.empty() || plugin_word(saved.optimizer) == plugin_word(now.optimizer)) return;
  throw IoError(fmt::format("checkpoint of step {}: its optimizer state is that of {}, the recipe names {}; checkpoint.load_optimizer = "
                            "\"convert\" takes what fits, \"skip\" the weights alone",
                            saved.train.step, saved.optimizer, now.optimizer));
}

void check_same_batches(const TrainState& saved, const BatchSchedule& batches) {
  const std::int64_t expected = batches.samples_after(saved.step);
  if (expected == saved.samples) return;
  throw ConfigError(fmt::format("train.global_batch_size: the checkpoint has consumed {} samples in {} steps, but with these batch sizes "
                                "(and ranks) {} steps are {} samples; keep the batch sizes of the run, or start another run from its "
                                "weights (run.dir, checkpoint.load, checkpoint.load_optimizer = \"skip\")",
                                saved.samples, saved.step, saved.step, expected));
}

std::vector<std::string> differences(const Manifest& saved, const Manifest& now) {
  std::vector<std::string> lines;
  const bool layout = grid_text(saved.grid) != grid_text(now.grid);
  if (layout || saved.provider != now.provider) {
    const auto told = [&](const Manifest& one) { return layout ? grid_text(one.grid) + ", " + one.provider : one.provider; };
    lines.push_back(fmt::format("written with {}; now {}: equal within tolerance, not to the bit", told(saved), told(now)));
  }
  const Keys before = keys_of(saved.recipe), after = keys_of(now.recipe);
  std::set<std::string> names;
  for (const Keys* keys : {&before, &after}) {
    for (const auto& [key, value] : *keys) names.insert(key);
  }
  for (const std::string& key : names) {
    const auto text = [&key](const Keys& keys) {
      const auto found = keys.find(key);
      return found == keys.end() ? std::string("not set") : found->second;
    };
    const std::string was = text(before), is = text(after);
    if (was != is) lines.push_back(fmt::format("{} was {}, now {}", key, was, is));
  }
  return lines;
}

}  // namespace espalier::app
