#include "options.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <utility>

#include "path_list.hpp"

namespace espalier::data_indexed {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

constexpr OptionSpec kTrainPart[] = {
    {"path", OptionType::string, nullptr, "prefix of a .bin/.idx pair, from the working directory"},
    {"weight", OptionType::number, "", "share of the blend in samples; any positive numbers, they are normalised", 0.0,
     kUnbounded},
    {"range", OptionType::string, "\"0:1\"", "START:END, the shares of its sequences to use (not together with split)"},
};

constexpr OptionSpec kHeldOutPart[] = {
    {"name", OptionType::string, "\"\"", "the set it belongs to; entries of one name are blended"},
    {"path", OptionType::string, nullptr, "prefix of a .bin/.idx pair, from the working directory"},
    {"weight", OptionType::number, "", "share of the set in samples; any positive numbers, they are normalised", 0.0,
     kUnbounded},
    {"range", OptionType::string, "\"0:1\"", "START:END, the shares of its sequences to use"},
};

// What Megatron takes when nothing is said.
constexpr const char* kDefaultSplit = "969, 30, 1";

/// The message without its subject: the host puts file, line and key there.
std::string reason_of(const ConfigError& error) {
  const std::string text = error.what();
  const auto colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

std::string resolved(const std::string& path, const RunFacts& facts) {
  if (path.empty() || facts.recipe_dir.empty() || std::filesystem::path(path).is_absolute()) {
    return path;
  }
  return (std::filesystem::path(facts.recipe_dir) / path).lexically_normal().string();
}

PartOptions parse_part(const ConfigView& entry, const RunFacts& facts) {
  PartOptions part;
  part.path = resolved(entry.string("path"), facts);
  if (part.path.empty()) {
    entry.fail("path", "is empty; give the prefix of a .bin/.idx pair");
  }
  if (entry.has("weight")) {
    part.weight = entry.number("weight");
    if (!(part.weight > 0.0)) {
      entry.fail("weight", "the weight of \"" + part.path + "\" is 0; leave the entry out instead");
    }
  }
  try {
    part.range = parse_range(entry.string("range"));
  } catch (const ConfigError& error) {
    entry.fail("range", reason_of(error));
  }
  return part;
}

/// In a set of several entries each needs its weight: a guess would train on another mix without a word. core takes the
/// lengths when there is none at all.
void check_weights(SetOptions& set, const std::vector<ConfigView>& entries, const ConfigView& config) {
  const auto weighted = [](const ConfigView& entry) { return entry.has("weight"); };
  const bool core = config.string("sampling") == sampling_name(Sampling::megatron_core);
  if (set.parts.size() > 1 && core && std::none_of(entries.begin(), entries.end(), weighted)) {
    set.weighted = false;
    return;
  }
  for (const ConfigView& entry : entries) {
    if (set.parts.size() > 1 && !entry.has("weight")) {
      entry.fail("weight", "is missing for \"" + entry.string("path") + "\": set \"" + set.name + "\" has " +
                               std::to_string(set.parts.size()) + " entries, and each needs a weight");
    }
  }
}

/// The sets of a file of lists. @throws ConfigError, IoError.
std::vector<SetOptions> lists_of(const ConfigView& config, const RunFacts& facts, const char* key, Split split) {
  std::vector<SetOptions> sets;
  for (const PathList& list : read_path_lists(resolved(config.string(key), facts))) {
    SetOptions set{list.name, split, {}};
    for (const PathList::Entry& entry : list.entries) {
      set.parts.push_back({resolved(entry.path, facts), entry.weight, entry.range});
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

SetOptions parse_train(const ConfigView& config, const RunFacts& facts) {
  SetOptions set{"train", Split::train, {}};
  if (config.has("train_list")) {
    if (config.has("path") || config.has("train")) {
      config.fail("train_list", "names the training data, and " + std::string(config.has("path") ? "path" : "train") +
                                    " does, too; keep one of them");
    }
    auto lists = lists_of(config, facts, "train_list", Split::train);
    if (lists.size() != 1) {
      config.fail("train_list", "holds " + std::to_string(lists.size()) + " lists; there is one set to train on");
    }
    lists[0].name = "train";
    return std::move(lists[0]);
  }
  if (config.has("path") == config.has("train")) {
    config.fail("train", config.has("path") ? "path and train are both given; path is short for a single entry of train"
                                            : "is missing: name the training data with train = [{path = \"PREFIX\", "
                                              "weight = 1.0}, …] or path = \"PREFIX\"");
  }
  if (config.has("path")) {
    set.parts.push_back({resolved(config.string("path"), facts), 1.0, {}});
    if (set.parts[0].path.empty()) {
      config.fail("path", "is empty; give the prefix of a .bin/.idx pair");
    }
    return set;
  }
  const auto entries = config.tables("train");
  for (const ConfigView& entry : entries) {
    set.parts.push_back(parse_part(entry, facts));
  }
  if (set.parts.empty()) {
    config.fail("train", "is an empty list; it needs at least one entry {path = \"PREFIX\"}");
  }
  check_weights(set, entries, config);
  return set;
}

void parse_held_out(const ConfigView& config, const RunFacts& facts, const char* key, Split split,
                    std::vector<SetOptions>& sets) {
  const std::string list_key = std::string(key) + "_list";
  if (config.has(list_key)) {
    if (config.has(key)) {
      config.fail(list_key, "and " + std::string(key) + " both name sets; keep one of them");
    }
    for (SetOptions& set : lists_of(config, facts, list_key.c_str(), split)) {
      for (const SetOptions& other : sets) {
        if (other.name == set.name) {
          config.fail(list_key, "\"" + set.name + "\" already names another set");
        }
      }
      sets.push_back(std::move(set));
    }
    return;
  }
  if (!config.has(key)) {
    return;
  }
  const std::size_t first = sets.size();
  std::vector<std::vector<ConfigView>> entries;  // of each new set
  for (const ConfigView& entry : config.tables(key)) {
    std::string name = entry.string("name");
    if (name.empty()) {
      name = key;
    }
    if (name.find_first_of("/\\ \t\n") != std::string::npos) {
      entry.fail("name", "\"" + name + "\" becomes part of file names: no slashes or spaces");
    }
    for (std::size_t k = 0; k < first; ++k) {
      if (sets[k].name == name) {
        entry.fail("name", "\"" + name + "\" already names another set");
      }
    }
    std::size_t at = first;
    while (at < sets.size() && sets[at].name != name) {
      ++at;
    }
    if (at == sets.size()) {
      sets.push_back({name, split, {}});
      entries.emplace_back();
    }
    sets[at].parts.push_back(parse_part(entry, facts));
    entries[at - first].push_back(entry);
  }
  for (std::size_t at = first; at < sets.size(); ++at) {
    check_weights(sets[at], entries[at - first], config);
  }
}

}  // namespace

constexpr OptionSpec kDataOptions[kDataOptionCount] = {
    {"path", OptionType::string, "", "prefix of a single .bin/.idx pair; short for train with one entry"},
    {"train", OptionType::tables, "", "training data: entries {path, weight, range}, blended by weight", -kUnbounded,
     kUnbounded, nullptr, kTrainPart, std::size(kTrainPart)},
    {"split", OptionType::string, "",
     "shares of train, validation and test in every entry of train (\"969, 30, 1\" when there are no explicit sets)"},
    {"valid", OptionType::tables, "", "validation sets of their own: entries {name, path, weight, range}", -kUnbounded,
     kUnbounded, nullptr, kHeldOutPart, std::size(kHeldOutPart)},
    {"test", OptionType::tables, "", "test sets of their own: entries {name, path, weight, range}", -kUnbounded,
     kUnbounded, nullptr, kHeldOutPart, std::size(kHeldOutPart)},
    {"train_list", OptionType::string, "",
     "file with the training data as NAME: WEIGHT START:END PATH, … (Megatron-DeepSpeed's "
     "--train-weighted-split-paths-path)"},
    {"valid_list", OptionType::string, "", "file with validation sets in that form, one a line"},
    {"test_list", OptionType::string, "", "file with test sets in that form, one a line"},
    {"sampling", OptionType::string, "\"bigscience\"", "whose rules of splits, epochs and blends", -kUnbounded,
     kUnbounded, "bigscience|megatron_core"},
    {"add_extra_token_to_sequence", OptionType::boolean, "true",
     "megatron_core: a sample has seq_length + 1 tokens; false: seq_length, its last target does not count"},
    {"drop_last_partial_validation_sequence", OptionType::boolean, "true",
     "megatron_core: false keeps the last, short sample of a validation set and pads it"},
    {"pad_token", OptionType::integer, "",
     "megatron_core: id of the tokenizer's pad token, where it has one: such targets do not count", 0.0, 2147483647.0},
    {"planned_samples", OptionType::integers, "[]",
     "numbers of training samples that the order was planned for before; a further plan starts at each", 1.0,
     kUnbounded},
    {"cache_dir", OptionType::string, "\"\"", "folder of the cached index arrays; empty: beside the data"},
    {"seed", OptionType::integer, "", "seed of all shuffles, when it is not to be that of the run", 0.0, 4294967295.0},
};

namespace {

void parse_rules(const ConfigView& config, DataOptions& options) {
  options.rules.sampling = *sampling_of_name(config.string("sampling"));
  options.rules.extra_token = config.boolean("add_extra_token_to_sequence");
  options.rules.keep_partial = !config.boolean("drop_last_partial_validation_sequence");
  if (config.has("pad_token")) {
    options.pad_id = static_cast<std::int32_t>(config.integer("pad_token"));
  }
  if (options.rules.sampling == Sampling::bigscience) {
    // The recipe that is saved with a checkpoint has every default in it: only what differs is a wish.
    const std::pair<const char*, bool> asked[] = {
        {"add_extra_token_to_sequence", !options.rules.extra_token},
        {"drop_last_partial_validation_sequence", options.rules.keep_partial},
        {"pad_token", config.has("pad_token")},
    };
    for (const auto& [key, differs] : asked) {
      if (differs) {
        config.fail(key, "is a setting of sampling = \"megatron_core\"; bigscience has none of the kind");
      }
    }
  }
}

/// Where the plans of the training order end.
void parse_plans(const ConfigView& config, const RunFacts& facts, DataOptions& options) {
  options.plan_ends = config.integers("planned_samples");
  for (std::size_t k = 1; k < options.plan_ends.size(); ++k) {
    if (options.plan_ends[k] <= options.plan_ends[k - 1]) {
      config.fail("planned_samples", "is not rising: " + std::to_string(options.plan_ends[k]) + " follows " +
                                         std::to_string(options.plan_ends[k - 1]));
    }
  }
  if (options.plan_ends.empty() || options.plan_ends.back() < facts.batch.train_samples) {
    options.plan_ends.push_back(facts.batch.train_samples);
  }
}

}  // namespace

DataOptions parse_options(const ConfigView& config, const RunFacts& facts) {
  DataOptions options;
  options.sets.push_back(parse_train(config, facts));
  parse_rules(config, options);
  parse_plans(config, facts, options);
  const bool explicit_sets =
      config.has("valid") || config.has("test") || config.has("valid_list") || config.has("test_list");
  if (config.has("split")) {
    if (explicit_sets) {
      config.fail("split",
                  "cuts the training data in train, valid and test, but explicit valid or test sets are given; "
                  "use range instead");
    }
    options.split = config.string("split");
  } else if (!explicit_sets) {
    options.split = kDefaultSplit;
  }
  if (options.split) {
    try {
      parse_split(*options.split);
    } catch (const ConfigError& error) {
      config.fail("split", reason_of(error));
    }
    for (const PartOptions& part : options.sets[0].parts) {
      if (part.range.start != 0.0 || part.range.end != 1.0) {
        config.fail(
            "split",
            "\"" + *options.split + "\"" + (config.has("split") ? "" : ", the default without valid or test sets,") +
                " and the range of \"" + part.path +
                "\" both cut the data; leave split out and name the other sets, as valid = [{path = \"PREFIX\", "
                "range = \"0.95:1\"}] (valid = [] for none)");
      }
    }
  }
  parse_held_out(config, facts, "valid", Split::valid, options.sets);
  parse_held_out(config, facts, "test", Split::test, options.sets);
  options.cache_folder = resolved(config.string("cache_dir"), facts);
  if (config.has("seed")) {
    options.seed = static_cast<std::uint32_t>(config.integer("seed"));
  } else if (facts.seed <= std::numeric_limits<std::uint32_t>::max()) {
    options.seed = static_cast<std::uint32_t>(facts.seed);
  } else {
    config.fail("seed", "the run's seed " + std::to_string(facts.seed) +
                            " is above 4294967295, which numpy's generator does not take; give data.seed");
  }
  return options;
}

}  // namespace espalier::data_indexed
