#include "config/source.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "config/toml.hpp"
#include "espalier/error.hpp"

namespace espalier::app {

namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  // A folder opens, but cannot be read.
  const int opened = errno;
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  if (!in || (!(text << in.rdbuf()) && in.bad()) || folder) {
    throw IoError(path.string(), "cannot read the recipe", folder ? EISDIR : opened);
  }
  return text.str();
}

class Includer {
 public:
  explicit Includer(std::vector<ConfigProblem>& problems) : problems_(problems) {}

  ConfigTable read(const fs::path& path, const std::string& origin) {
    std::error_code error;
    const fs::path known = fs::weakly_canonical(path, error);
    open_.push_back(known);
    ConfigTable own = parse_toml(read_text(path), path.string(), origin, problems_);
    ConfigTable result;
    result.source = {path.string(), 1, 1, origin};
    if (const auto found = own.values.find("include"); found != own.values.end()) {
      const ConfigValue include = found->second;
      own.values.erase(found);
      for (const ConfigValue& name : names(include))
        add(path, std::get<std::string>(name.data), include.source, result);
    }
    merge(result, own);
    open_.pop_back();
    return result;
  }

 private:
  ConfigValue::Array names(const ConfigValue& include) {
    ConfigValue::Array list;
    if (std::holds_alternative<std::string>(include.data)) {
      list = {include};
    } else if (const auto* array = std::get_if<ConfigValue::Array>(&include.data)) {
      list = *array;
    }
    const bool good = !list.empty() && std::all_of(list.begin(), list.end(), [](const ConfigValue& name) {
      return std::holds_alternative<std::string>(name.data);
    });
    if (good) return list;
    if (!std::holds_alternative<ConfigValue::Array>(include.data) || !list.empty()) {
      problems_.push_back({include.source, "include", "expected array of strings, found " + include.to_text()});
    }
    return {};
  }

  void add(const fs::path& from, const std::string& name, const ConfigSource& source, ConfigTable& result) {
    const fs::path path = (from.parent_path() / name).lexically_normal();
    std::error_code error;
    const fs::path known = fs::weakly_canonical(path, error);
    if (std::find(open_.begin(), open_.end(), known) != open_.end()) {
      std::string chain;
      for (const fs::path& open : open_) chain += open.filename().string() + " → ";
      problems_.push_back({source, "include", "a circle: " + chain + known.filename().string()});
      return;
    }
    try {
      merge(result, read(path, "include"));
    } catch (const IoError& problem) {
      problems_.push_back({source, "include", problem.what()});
    }
  }

  std::vector<ConfigProblem>& problems_;
  std::vector<fs::path> open_;  // files being read, outermost first
};

/// Cuts at ';' and new lines outside of quotes and brackets.
std::vector<std::string> split_assignments(const std::string& text) {
  std::vector<std::string> parts(1);
  char quote = '\0';
  int depth = 0;
  for (const char c : text) {
    if (quote != '\0') {
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if ((c == ';' || c == '\n') && depth <= 0) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
  }
  std::erase_if(parts, [](const std::string& part) { return part.find_first_not_of(" \t\r") == std::string::npos; });
  return parts;
}

}  // namespace

ConfigTable read_sources(const std::string& file, const std::string& text, const std::vector<std::string>& overrides,
                         const std::string& environment, std::vector<ConfigProblem>& problems) {
  ConfigTable result;
  result.source = {file, 1, 1, "recipe"};
  for (const std::string& assignment : split_assignments(environment)) {
    merge(result, parse_assignment(assignment, kSetVariable, problems));
  }
  merge(result, text.empty() ? Includer(problems).read(file, "recipe") : parse_toml(text, file, "recipe", problems));
  for (const std::string& assignment : overrides) merge(result, parse_assignment(assignment, "--set", problems));
  return result;
}

}  // namespace espalier::app
