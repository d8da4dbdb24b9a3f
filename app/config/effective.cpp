#include <fmt/format.h>

#include "config/checks.hpp"
#include "config/toml.hpp"

namespace espalier::app {

namespace {

/// Values that follow from others, written out so that the saved recipe reproduces the run whatever the defaults
/// become.
struct Derived {
  std::string key;
  ConfigValue::Data value;
  std::string note;
};

std::vector<Derived> derived_values(const Recipe& recipe) {
  const ModelSection& model = recipe.model;
  const TrainSection& train = recipe.train;
  return {
      {"run.dir", recipe.run_dir, "from the recipe's name"},
      {"model.ffn", model.ffn, "4 * hidden"},
      {"model.init_method_std", model.init_method_std, "sqrt(1 / (3 * hidden))"},
      {"train.train_samples", train.train_samples, "from train_iters"},
      {"train.global_batch_size", train.batch.global_batch,
       "from micro_batch_size, gradient_accumulation_steps and the grid"},
      {"train.micro_batch_size", train.batch.micro_batch,
       "from global_batch_size, gradient_accumulation_steps and the grid"},
      {"train.lr_decay_samples", train.rate.decay_samples, "the length of the run"},
      {"train.lr_wsd_decay_style", std::string(name_of(train.rate.wsd_decay)), "default"},
      {"checkpoint.save", recipe.checkpoint.save, "from run.dir"},
      {"log.file", recipe.log.file, "from run.dir"},
      {"log.metrics", recipe.log.metrics, "from run.dir"},
  };
}

/// Keys the effective recipe leaves out: what they said is said by another key.
bool is_replaced(const Recipe& recipe, const std::string& key) {
  if (key == "train.train_iters" || key == "train.gradient_accumulation_steps") return true;
  const RateDecay decay = recipe.train.rate.decay;
  if (decay == RateDecay::constant && (key == "train.min_lr" || key == "train.lr_decay_samples")) return true;
  return decay != RateDecay::wsd && (key == "train.lr_wsd_decay_style" || key == "train.lr_wsd_decay_samples");
}

std::string shown(const ConfigSource& source) {
  if (source.file.empty()) return source.origin;
  return source.file + ":" + std::to_string(source.line);
}

const PluginChoice* choice_at(const Recipe& recipe, std::string_view path) {
  for (const PluginChoice* choice : {&recipe.optimizer, &recipe.data, &recipe.tokenizer, &recipe.backend.choice,
                                     &recipe.tensor.choice, &recipe.pipeline.choice, &recipe.data_parallel.choice}) {
    if (choice->path == path) return choice;
  }
  return nullptr;
}

}  // namespace

void fill_effective(const Tables& tables, Recipe& recipe) {
  recipe.keys.clear();
  recipe.effective = "# The effective recipe of " + recipe.file + ": every value, and where it came from.\n";
  const std::vector<Derived> derived = derived_values(recipe);
  for (const Section& part : sections()) {
    std::vector<EffectiveKey> keys;
    for (const OptionSpec& spec : part.keys) {
      const std::string key = std::string(part.path) + "." + spec.name;
      if (is_replaced(recipe, key)) continue;
      if (tables.has(key)) {
        const ConfigValue* value = tables.find(key);
        keys.push_back({key, value->to_text(), value->source, "trainer", ""});
        continue;
      }
      for (const Derived& one : derived) {
        if (one.key != key) continue;
        ConfigValue value;
        value.data = one.value;
        keys.push_back({key, value.to_text(), {"", 0, 0, "derived"}, "trainer", one.note});
      }
    }
    if (const PluginChoice* choice = choice_at(recipe, part.path)) {
      for (const auto& [name, value] : choice->options.values) {
        keys.push_back(
            {std::string(part.path) + "." + name, value.to_text(), value.source, choice->library_name(), ""});
      }
    }
    if (keys.empty()) continue;
    recipe.effective += fmt::format("\n[{}]\n", part.path);
    for (EffectiveKey& key : keys) {
      const std::string name = key.key.substr(std::string_view(part.path).size() + 1);
      const std::string note = key.note.empty() ? shown(key.source) : "derived: " + key.note;
      recipe.effective += fmt::format("{} = {}  # {}\n", name, key.value, note);
      recipe.keys.push_back(std::move(key));
    }
  }
}

}  // namespace espalier::app
