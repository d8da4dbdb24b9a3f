#include "options.hpp"

#include <filesystem>
#include <iterator>
#include <limits>

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

/// In a set of several entries each needs its weight: a guess would train on another mix without a word.
void require_weights(const SetOptions& set, const std::vector<ConfigView>& entries) {
  for (const ConfigView& entry : entries) {
    if (set.parts.size() > 1 && !entry.has("weight")) {
      entry.fail("weight", "is missing for \"" + entry.string("path") + "\": set \"" + set.name + "\" has " +
                               std::to_string(set.parts.size()) + " entries, and each needs a weight");
    }
  }
}

SetOptions parse_train(const ConfigView& config, const RunFacts& facts) {
  SetOptions set{"train", Split::train, {}};
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
  require_weights(set, entries);
  return set;
}

void parse_held_out(const ConfigView& config, const RunFacts& facts, const char* key, Split split,
                    std::vector<SetOptions>& sets) {
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
    require_weights(sets[at], entries[at - first]);
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
    {"sampling", OptionType::string, "\"bigscience\"", "rules of splits, epochs and blends", -kUnbounded, kUnbounded,
     "bigscience"},
    {"cache_dir", OptionType::string, "\"\"", "folder of the cached index arrays; empty: beside the data"},
    {"seed", OptionType::integer, "", "seed of all shuffles, when it is not to be that of the run", 0.0, 4294967295.0},
};

DataOptions parse_options(const ConfigView& config, const RunFacts& facts) {
  DataOptions options;
  options.sets.push_back(parse_train(config, facts));
  const bool explicit_sets = config.has("valid") || config.has("test");
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
        config.fail("split", "\"" + *options.split + "\"" + (config.has("split") ? "" : ", the default without valid or test sets,") +
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
