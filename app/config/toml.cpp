#include "config/toml.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <utility>

namespace espalier::app {

namespace {

class Reader {
 public:
  Reader(const std::string& file, const std::string& origin, std::vector<ConfigProblem>& problems)
      : file_(file), origin_(origin), problems_(problems) {}

  ConfigTable table(const toml::table& from, const std::string& path) {
    ConfigTable result;
    result.source = source(from.source());
    for (const auto& [key, node] : from) {
      const std::string name(key.str());
      const std::string full = path.empty() ? name : path + "." + name;
      ConfigValue value;
      if (!read(node, full, value)) continue;
      // The key says where a problem is better than the value does: values of dotted keys and tables start elsewhere.
      value.source = source(key.source());
      result.values.emplace(name, std::move(value));
    }
    return result;
  }

 private:
  static bool is_unprintable(char c) {
    return (static_cast<unsigned char>(c) < ' ' && c != '\t' && c != '\n' && c != '\r') || c == '\x7f';
  }

  ConfigSource source(const toml::source_region& region) const {
    if (file_.empty()) return {"", 0, 0, origin_};
    return {file_, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column), origin_};
  }

  bool read(const toml::node& node, const std::string& path, ConfigValue& value) {
    value.source = source(node.source());
    if (const auto* nested = node.as_table()) {
      value.data = std::make_shared<ConfigTable>(table(*nested, path));
    } else if (const auto* array = node.as_array()) {
      ConfigValue::Array elements;
      for (const toml::node& element : *array) {
        ConfigValue read_element;
        if (read(element, path, read_element)) elements.push_back(std::move(read_element));
      }
      value.data = std::move(elements);
    } else if (const auto* text = node.as_string()) {
      if (std::ranges::any_of(text->get(), is_unprintable)) {
        problems_.push_back({value.source, path, "a control character (NUL, ESC, ...) in a string; no path and no name has one"});
        return false;
      }
      value.data = text->get();
    } else if (const auto* integer = node.as_integer()) {
      value.data = integer->get();
    } else if (const auto* number = node.as_floating_point()) {
      value.data = number->get();
    } else if (const auto* boolean = node.as_boolean()) {
      value.data = boolean->get();
    } else {
      problems_.push_back({value.source, path, "no key of a recipe takes a date or a time; write a string"});
      return false;
    }
    return true;
  }

  const std::string& file_;
  const std::string& origin_;
  std::vector<ConfigProblem>& problems_;
};

/// What the parser says, on one line.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) line += c == '\n' || c == '\r' ? ' ' : c;
  return line;
}

}  // namespace

ConfigTable parse_toml(std::string_view text, const std::string& file, const std::string& origin,
                       std::vector<ConfigProblem>& problems) {
  try {
    const toml::table table = toml::parse(text, file);
    return Reader(file, origin, problems).table(table, "");
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    const ConfigSource source =
        file.empty() ? ConfigSource{"", 0, 0, origin}
                     : ConfigSource{file, static_cast<int>(begin.line), static_cast<int>(begin.column), origin};
    problems.push_back({source, "", "no valid TOML: " + one_line(error.description())});
    return {};
  }
}

ConfigTable parse_assignment(const std::string& text, const std::string& origin, std::vector<ConfigProblem>& problems) {
  const ConfigSource source{"", 0, 0, origin};
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    problems.push_back({source, text, "expected KEY=VALUE, as train.lr=1e-4"});
    return {};
  }
  std::vector<ConfigProblem> found;
  ConfigTable table = parse_toml(text, "", origin, found);
  if (!found.empty()) {
    const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
    // Nothing that may have been meant as a number: its own message is better. "1f1b" has letters that no number has.
    const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
    bool word = !value.empty() && (is_letter(value[0]) || std::strchr("_./", value[0]));
    word = word ||
           std::any_of(value.begin(), value.end(), [&](char c) { return is_letter(c) && !std::strchr("eExob", c); });
    for (const char c : value) {
      word = word && (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("_-./:@+", c));
    }
    if (word) {
      found.clear();
      table = parse_toml(key + "=" + toml_string(value), "", origin, found);
    }
    const bool text_meant = !value.empty() && std::strchr("\"'[{+-0123456789", value[0]) == nullptr;
    for (ConfigProblem& problem : found) {
      problem.key = problem.key.empty() ? key : problem.key;
      if (text_meant) problem.message += "; text that is no plain word needs quotes: '" + key + "=\"...\"'";
      problems.push_back(std::move(problem));
    }
  }
  return table;
}

void merge(ConfigTable& table, const ConfigTable& over) {
  if (table.source.file.empty() || !over.source.file.empty()) table.source = over.source;
  for (const auto& [key, value] : over.values) {
    const auto* nested = std::get_if<std::shared_ptr<ConfigTable>>(&value.data);
    const auto found = table.values.find(key);
    if (nested != nullptr && found != table.values.end()) {
      if (auto* old = std::get_if<std::shared_ptr<ConfigTable>>(&found->second.data)) {
        merge(**old, **nested);
        continue;
      }
    }
    ConfigValue copy = value;
    // Tables are shared by pointer: a later merge must not reach into what it was copied from.
    if (nested != nullptr) {
      auto own = std::make_shared<ConfigTable>();
      merge(*own, **nested);
      copy.data = std::move(own);
    }
    table.values.insert_or_assign(key, std::move(copy));
  }
}

std::string toml_string(std::string_view text) {
  ConfigValue value;
  value.data = std::string(text);
  return value.to_text();
}

}  // namespace espalier::app
