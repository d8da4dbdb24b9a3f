#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "espalier/config.hpp"

namespace espalier::testing_support {

/// A value as a recipe file holds it, at the given place of recipe.toml.
inline ConfigValue at(int line, int column, ConfigValue::Data data) {
  return {std::move(data), {"recipe.toml", line, column, "recipe"}};
}

inline ConfigValue::Data integer(std::int64_t value) { return value; }
inline ConfigValue::Data text(std::string value) { return value; }

inline ConfigValue::Data array(std::vector<ConfigValue::Data> elements) {
  ConfigValue::Array values;
  for (auto& element : elements) values.push_back({std::move(element), {}});
  return values;
}

using Entries = std::vector<std::pair<std::string, ConfigValue>>;

inline ConfigTable table(const Entries& entries, int line = 1) {
  ConfigTable result;
  result.source = {"recipe.toml", line, 1, "recipe"};
  for (const auto& [key, value] : entries) result.values.emplace(key, value);
  return result;
}

inline ConfigValue::Data nested(const Entries& entries, int line) {
  return std::make_shared<ConfigTable>(table(entries, line));
}

/// Texts of the problems that check_options finds in the table [optimizer].
inline std::vector<std::string> problems(ConfigTable& checked, std::span<const OptionSpec> specs,
                                         std::span<const std::string_view> reserved = {}) {
  std::vector<ConfigProblem> found;
  check_options(checked, "optimizer", specs, reserved, found);
  std::vector<std::string> texts;
  for (const ConfigProblem& problem : found) texts.push_back(to_string(problem));
  return texts;
}

}  // namespace espalier::testing_support
