#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/open.hpp"
#include "espalier/error.hpp"
#include "train/phase.hpp"

namespace espalier::app {

namespace {

/// One key of one rank's recipe, as it travels.
struct Told {
  std::string key, value, source;
  bool derived = false;
};

/// What each rank may have its own of: nothing that is computed or communicated follows from it, or all ranks agree on
/// what does (when to stop).
bool may_differ(std::string_view key) {
  constexpr std::string_view kOwn[] = {"log.file",
                                       "log.metrics",
                                       "log.level",
                                       "train.threads",
                                       "train.exit_interval",
                                       "train.exit_duration_in_mins",
                                       "plugins.search_path",
                                       "debug.collective_timeout"};
  return std::find(std::begin(kOwn), std::end(kOwn), key) != std::end(kOwn);
}

// No TOML text of a key, value or source has these control characters unescaped.
constexpr char kField = '\x1f', kEnd = '\x1e';

std::string word_of(const Recipe& recipe) {
  std::string word;
  for (const EffectiveKey& key : recipe.keys) {
    if (may_differ(key.key)) continue;
    const bool derived = key.source.origin == "derived";
    const ConfigSource& at = key.source;
    const std::string source = at.file.empty() ? at.origin : at.file + ":" + std::to_string(at.line);
    word += key.key + kField + key.value + kField + (derived ? "d" : "") + kField + source + kEnd;
  }
  return word;
}

std::vector<Told> read_word(std::string_view word) {
  std::vector<Told> keys;
  const auto next = [&](char end) {
    const auto length = word.find(end);
    ESPALIER_ASSERT(length != std::string_view::npos);
    std::string field(word.substr(0, length));
    word.remove_prefix(length + 1);
    return field;
  };
  while (!word.empty()) {
    Told one;
    one.key = next(kField);
    one.value = next(kField);
    one.derived = !next(kField).empty();
    one.source = next(kEnd);
    keys.push_back(std::move(one));
  }
  return keys;
}

/// The first key, in the order of `a`, that the two have otherwise; what follows from other keys only when nothing else
/// differs. Where only one has it the other is null.
std::pair<const Told*, const Told*> first_difference(const std::vector<Told>& a, const std::vector<Told>& b) {
  std::pair<const Told*, const Told*> derived = {nullptr, nullptr};
  const auto find = [](const std::vector<Told>& in, const std::string& key) -> const Told* {
    const auto found = std::find_if(in.begin(), in.end(), [&](const Told& one) { return one.key == key; });
    return found == in.end() ? nullptr : &*found;
  };
  const auto look = [&](const Told* x, const Told* y) {
    if (x != nullptr && y != nullptr && x->value == y->value) return false;
    if ((x == nullptr || x->derived) && (y == nullptr || y->derived)) {
      if (derived.first == nullptr && derived.second == nullptr) derived = {x, y};
      return false;
    }
    return true;
  };
  for (const Told& one : a) {
    if (const Told* other = find(b, one.key); look(&one, other)) return {&one, other};
  }
  for (const Told& one : b) {
    if (find(a, one.key) == nullptr && look(nullptr, &one)) return {nullptr, &one};
  }
  return derived;
}

std::string said(const Told* one, int rank) {
  const std::string value = one == nullptr ? "not set" : one->value + " (" + one->source + ")";
  return value + " on rank " + std::to_string(rank);
}

/// @throws ConfigError alike on all ranks when they would not run the same recipe. Collective.
void require_same_recipe(const Recipe& recipe, Communicator& world) {
  if (world.size() == 1) return;
  const std::string off = recipe.debug.compare_recipes ? "" : "off";
  const std::vector<std::string> wishes = gather_strings(world, off);
  if (std::all_of(wishes.begin(), wishes.end(), [](const std::string& wish) { return wish == "off"; })) return;
  const std::vector<std::string> words = gather_strings(world, word_of(recipe));
  const auto other = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
    if (word == words[0]) return false;
    const auto [a, b] = first_difference(read_word(words[0]), read_word(word));
    return a != nullptr || b != nullptr;
  });
  if (other == words.end()) return;
  const int rank = static_cast<int>(other - words.begin());
  const std::vector<Told> here = read_word(words[0]), there = read_word(*other);
  const auto [a, b] = first_difference(here, there);
  throw ConfigError("the ranks have different recipes: " + (a != nullptr ? a : b)->key + " is " + said(a, 0) + " and " +
                    said(b, rank) + "; start every rank with the same recipe, --set and environment");
}

}  // namespace

OpenRecipe open_recipe(RecipeRequest request, Communicator& world) {
  request.world = world.size();
  if (world.size() == 1) return open_recipe(std::as_const(request));  // keeps the class of its own error
  OpenRecipe opened;
  phase(world, [&] { opened = open_recipe(std::as_const(request)); });
  require_same_recipe(opened.recipe, world);
  opened.plugins->agree_on(world);
  return opened;
}

}  // namespace espalier::app
