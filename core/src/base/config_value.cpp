// Values of a recipe and problems with them, as text.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/config_text.hpp"
#include "espalier/config.hpp"

namespace espalier {

namespace {

template <class... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overload(Cases...) -> Overload<Cases...>;  // Clang 14 does not find it by itself

}  // namespace

std::string config_number_text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return {digits.data(), end};
}

std::string config_string_text(std::string_view text) {
  constexpr std::string_view kSpecial = "\"\\\n\r\t", kNames = "\"\\nrt", kHex = "0123456789ABCDEF";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (const auto which = kSpecial.find(c); which != std::string_view::npos) {
      quoted += {'\\', kNames[which]};
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += {'\\', 'u', '0', '0', kHex[byte >> 4U], kHex[byte & 15U]};
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string config_key_text(std::string_view key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  return bare ? std::string(key) : config_string_text(key);
}

std::string config_join(std::string_view path, std::string_view key) {
  if (path.empty()) return config_key_text(key);
  if (key.empty()) return std::string(path);
  return std::string(path) + "." + config_key_text(key);
}

std::string_view ConfigValue::type_name() const {
  constexpr std::array<std::string_view, 6> kNames = {"boolean", "integer", "float", "string", "array", "table"};
  static_assert(std::variant_size_v<Data> == kNames.size());
  return kNames[data.index()];
}

std::string ConfigValue::to_text() const {
  return std::visit(Overload{
                        [](bool value) -> std::string { return value ? "true" : "false"; },
                        [](std::int64_t value) { return std::to_string(value); },
                        [](double value) {
                          std::string text = config_number_text(value);
                          // TOML tells a float from an integer by its point or exponent.
                          if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
                          return text;
                        },
                        [](const std::string& value) { return config_string_text(value); },
                        [](const Array& values) {
                          std::string text = "[";
                          for (const ConfigValue& value : values)
                            text += (text.size() > 1 ? ", " : "") + value.to_text();
                          return text + "]";
                        },
                        [](const std::shared_ptr<ConfigTable>& table) -> std::string {
                          if (table == nullptr || table->values.empty()) return "{}";
                          std::string text = "{";
                          for (const auto& [key, value] : table->values) {
                            text += (text.size() > 1 ? ", " : " ") + config_key_text(key) + " = " + value.to_text();
                          }
                          return text + " }";
                        },
                    },
                    data);
}

const ConfigValue* ConfigTable::find(std::string_view key) const {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

std::string to_string(const ConfigProblem& problem) {
  const ConfigSource& source = problem.source;
  std::string text;
  if (!source.file.empty()) {
    text = source.file + ":";
    if (source.line > 0) text += std::to_string(source.line) + ":";
    if (source.line > 0 && source.column > 0) text += std::to_string(source.column) + ":";
    text += " ";
  } else if (!source.origin.empty()) {
    text = source.origin + " ";
  }
  if (!problem.key.empty()) text += problem.key + ": ";
  return text + problem.message;
}

void throw_if_any(std::span<const ConfigProblem> problems) {
  if (problems.empty()) return;
  // Files in the order in which they first show a problem, then from top to bottom; what came from no file goes last.
  std::vector<std::string_view> files;
  for (const ConfigProblem& problem : problems) {
    if (!problem.source.file.empty() && std::find(files.begin(), files.end(), problem.source.file) == files.end()) {
      files.push_back(problem.source.file);
    }
  }
  std::vector<const ConfigProblem*> order;
  order.reserve(problems.size());
  for (const ConfigProblem& problem : problems) order.push_back(&problem);
  const auto place = [&](const ConfigProblem* problem) {
    const auto file = std::find(files.begin(), files.end(), problem->source.file) - files.begin();
    return std::array<std::ptrdiff_t, 3>{file, problem->source.line, problem->source.column};
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const ConfigProblem* a, const ConfigProblem* b) { return place(a) < place(b); });

  std::string text;
  for (const ConfigProblem* problem : order) {
    if (!text.empty()) text += "\n";
    text += to_string(*problem);
  }
  throw ConfigError(text);
}

}  // namespace espalier
