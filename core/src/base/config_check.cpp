// What a component declares against what the recipe says.
#include <algorithm>
#include <cmath>

#include "base/config_text.hpp"
#include "espalier/config.hpp"

namespace espalier {

namespace {

std::vector<std::string_view> split_choices(const char* choices) {
  std::vector<std::string_view> names;
  std::string_view rest = choices;
  while (true) {
    const std::size_t bar = rest.find('|');
    names.push_back(rest.substr(0, bar));
    if (bar == std::string_view::npos) return names;
    rest.remove_prefix(bar + 1);
  }
}

template <class Names>
std::string quoted_list(const Names& names) {
  std::string text;
  for (const auto& name : names) {
    if (!text.empty()) text += ", ";
    text += '"';
    text += name;
    text += '"';
  }
  return text;
}

// The type of a scalar option, or of the elements of an array option.
OptionType element_type(OptionType type) {
  switch (type) {
    case OptionType::integers:
      return OptionType::integer;
    case OptionType::numbers:
      return OptionType::number;
    case OptionType::strings:
      return OptionType::string;
    case OptionType::tables:
      return OptionType::table;
    default:
      return type;
  }
}

bool is_array(OptionType type) { return element_type(type) != type; }

std::string_view type_text(OptionType type) {
  switch (type) {
    case OptionType::boolean:
      return "boolean";
    case OptionType::integer:
      return "integer";
    case OptionType::number:
      return "number";
    case OptionType::string:
      return "string";
    case OptionType::integers:
      return "array of integers";
    case OptionType::numbers:
      return "array of numbers";
    case OptionType::strings:
      return "array of strings";
    case OptionType::table:
      return "table";
    case OptionType::tables:
      return "array of tables";
  }
  return "value";
}

std::string range_text(const OptionSpec& spec) {
  const bool low = std::isfinite(spec.min);
  const bool high = std::isfinite(spec.max);
  if (low && high) return " from " + config_number_text(spec.min) + " to " + config_number_text(spec.max);
  if (low) return " of at least " + config_number_text(spec.min);
  if (high) return " of at most " + config_number_text(spec.max);
  return "";
}

// "integer of at least 1", "one of "a", "b"": what would have been right.
std::string expected_text(OptionType type, const OptionSpec& spec) {
  if (type == OptionType::string && spec.choices != nullptr)
    return "one of " + quoted_list(split_choices(spec.choices));
  std::string text(type_text(type));
  if (type == OptionType::integer || type == OptionType::number) text += range_text(spec);
  return text;
}

std::string found_text(const ConfigValue& value) {
  std::string text(value.type_name());
  if (text != "table" && text != "array") text += " " + value.to_text();
  return text;
}

class Checker {
 public:
  explicit Checker(std::vector<ConfigProblem>& problems) : problems_(problems) {}

  void check_table(ConfigTable& table, std::string_view path, std::span<const OptionSpec> specs,
                   std::span<const std::string_view> reserved) {
    const auto is_reserved = [&](std::string_view key) {
      return std::find(reserved.begin(), reserved.end(), key) != reserved.end();
    };
    for (const auto& [key, value] : table.values) {
      const std::string_view name = key;
      const bool known =
          std::any_of(specs.begin(), specs.end(), [&](const OptionSpec& spec) { return name == spec.name; });
      if (!known && !is_reserved(name)) report_unknown(value, config_join(path, name), name, specs, reserved);
    }
    for (const OptionSpec& spec : specs) {
      if (is_reserved(spec.name)) continue;
      const std::string key = config_join(path, spec.name);
      if (const auto found = table.values.find(std::string_view(spec.name)); found != table.values.end()) {
        check_value(found->second, key, spec, found->second.source);
      } else if (spec.fallback == nullptr) {
        report(table.source, key,
               "missing; expected " +
                   (is_array(spec.type) ? std::string(type_text(spec.type)) : expected_text(spec.type, spec)) +
                   (spec.help != nullptr && *spec.help != '\0' ? ": " + std::string(spec.help) : ""));
      } else if (*spec.fallback != '\0') {
        table.values.emplace(spec.name, make_default(spec, key));
      }
    }
  }

 private:
  void report(const ConfigSource& source, std::string key, std::string message) {
    problems_.push_back({source, std::move(key), std::move(message)});
  }

  void report_unknown(const ConfigValue& value, std::string key, std::string_view name,
                      std::span<const OptionSpec> specs, std::span<const std::string_view> reserved) {
    std::vector<std::string_view> known(reserved.begin(), reserved.end());
    for (const OptionSpec& spec : specs) known.emplace_back(spec.name);
    std::string message = "unknown key";
    if (const std::string near = nearest_name(name, known); !near.empty()) {
      message += "; did you mean \"" + near + "\"?";
    } else if (known.empty()) {
      message += "; this table takes no keys";
    } else {
      message += "; known here: " + quoted_list(known);
    }
    report(value.source, std::move(key), std::move(message));
  }

  // `place` is where to point when the value itself carries no position (an element of an array set on the command
  // line).
  void check_value(ConfigValue& value, const std::string& key, const OptionSpec& spec, const ConfigSource& place) {
    if (!is_array(spec.type)) return check_one(value, key, spec.type, spec, place);
    auto* const elements = std::get_if<ConfigValue::Array>(&value.data);
    if (elements == nullptr) {
      return report(place, key, "expected " + std::string(type_text(spec.type)) + ", found " + found_text(value));
    }
    for (std::size_t i = 0; i < elements->size(); ++i) {
      ConfigValue& element = (*elements)[i];
      check_one(element, key + "[" + std::to_string(i) + "]", element_type(spec.type), spec,
                element.source.line > 0 ? element.source : place);
    }
  }

  void check_one(ConfigValue& value, const std::string& key, OptionType type, const OptionSpec& spec,
                 const ConfigSource& place) {
    const auto refuse = [&](std::string_view advice) {
      report(place, key,
             "expected " + expected_text(type, spec) + ", found " + found_text(value) + std::string(advice));
    };
    const auto in_range = [&](double number) { return number >= spec.min && number <= spec.max; };
    const auto* const integer = std::get_if<std::int64_t>(&value.data);
    const auto* const real = std::get_if<double>(&value.data);
    switch (type) {
      case OptionType::boolean:
        if (!std::holds_alternative<bool>(value.data)) refuse("; write true or false");
        break;
      case OptionType::integer:
        if (integer == nullptr) {
          const bool whole = real != nullptr && std::abs(*real) < 9e15 && *real == std::floor(*real);
          refuse(whole ? "; write " + std::to_string(static_cast<std::int64_t>(*real)) : std::string());
        } else if (!in_range(static_cast<double>(*integer))) {
          refuse("");
        }
        break;
      case OptionType::number: {
        const bool numeric = integer != nullptr || (real != nullptr && std::isfinite(*real));
        if (!numeric) {
          refuse(real != nullptr ? ", which is not finite" : "");
        } else if (!in_range(integer != nullptr ? static_cast<double>(*integer) : *real)) {
          refuse("");
        }
        break;
      }
      case OptionType::string:
        check_string(value, spec, refuse);
        break;
      case OptionType::table: {
        auto* const table = std::get_if<std::shared_ptr<ConfigTable>>(&value.data);
        if (table == nullptr || *table == nullptr) {
          refuse("");
        } else if (spec.nested != nullptr) {
          check_table(**table, key, {spec.nested, spec.nested_count}, {});
        }
        break;
      }
      default:
        ESPALIER_ASSERT(!"element_type() leaves no arrays");
    }
  }

  template <class Refuse>
  static void check_string(const ConfigValue& value, const OptionSpec& spec, const Refuse& refuse) {
    const auto* const text = std::get_if<std::string>(&value.data);
    if (text == nullptr) return refuse("");
    if (spec.choices == nullptr) return;
    const auto choices = split_choices(spec.choices);
    if (std::find(choices.begin(), choices.end(), *text) != choices.end()) return;
    const std::string near = nearest_name(*text, choices);
    refuse(near.empty() ? std::string() : "; did you mean \"" + near + "\"?");
  }

  // A default that does not fit its own option is a bug of whoever declared it, not of the recipe.
  ConfigValue make_default(const OptionSpec& spec, const std::string& key) {
    auto value = parse_default(spec.fallback);
    std::string problem = "is no TOML value";
    if (value) {
      std::vector<ConfigProblem> found;
      Checker(found).check_value(*value, key, spec, value->source);
      if (found.empty()) return std::move(*value);
      problem = "does not fit it: " + found.front().message;
    }
    throw Error(ExitCode::internal,
                "option " + key + " declares the default `" + spec.fallback + "`, which " + problem);
  }

  std::vector<ConfigProblem>& problems_;
};

}  // namespace

void check_options(ConfigTable& table, std::string_view path, std::span<const OptionSpec> specs,
                   std::span<const std::string_view> reserved, std::vector<ConfigProblem>& problems) {
  Checker(problems).check_table(table, path, specs, reserved);
}

}  // namespace espalier
