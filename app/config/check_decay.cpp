#include <algorithm>
#include <string>

#include "config/checks.hpp"
#include "model/parameters.hpp"

namespace espalier::app {

void check_decay(Tables& tables, const Recipe& recipe) {
  const DecayRules& rules = recipe.train.weight_decay;
  if (rules.never.empty() && rules.always.empty()) return;
  for (const char* key : {"model.layers", "model.hidden", "model.vocab_size", "model.seq_length", "model.heads"}) {
    if (!tables.has(key)) return;
  }
  const ParameterList parameters(shape_of(recipe.model));
  const auto check = [&](const char* key, const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns) {
      const bool used = std::any_of(parameters.all().begin(), parameters.all().end(),
                                    [&](const Parameter& one) { return matches_pattern(pattern, one.name); });
      if (used) continue;
      tables.complain(key, "no parameter is called \"" + pattern + "\"; names are as in \"" +
                               std::string(parameters[0].name) + "\", \"" + std::string(parameters.all().back().name) +
                               "\", * matches any text");
    }
  };
  check("train.no_weight_decay", rules.never);
  check("train.weight_decay_also", rules.always);
}

}  // namespace espalier::app
