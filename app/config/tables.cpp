#include "config/tables.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "espalier/error.hpp"

namespace espalier::app {

namespace {

std::pair<std::string_view, std::string_view> split(std::string_view key) {
  const auto dot = key.rfind('.');
  ESPALIER_ASSERT(dot != std::string_view::npos);
  return {key.substr(0, dot), key.substr(dot + 1)};
}

bool declares(const Section& section, std::string_view key) {
  return std::any_of(section.keys.begin(), section.keys.end(),
                     [&](const OptionSpec& spec) { return key == spec.name; });
}

const Section* find_section(std::string_view path) {
  for (const Section& candidate : sections()) {
    if (path == candidate.path) return &candidate;
  }
  return nullptr;
}

/// Whether the path is a table that holds sections: "parallel".
bool is_group(std::string_view path) {
  return std::any_of(sections().begin(), sections().end(), [&](const Section& candidate) {
    const std::string_view whole = candidate.path;
    return whole.size() > path.size() && whole.starts_with(path) && whole[path.size()] == '.';
  });
}

/// Sections that declare the key, as "train.lr".
std::string home_of(std::string_view key, std::string_view except) {
  for (const Section& candidate : sections()) {
    if (candidate.path != except && key != "plugin" && key != "size" && declares(candidate, key)) {
      return std::string(candidate.path) + "." + std::string(key);
    }
  }
  return "";
}

/// nearest_name, and the one name that a shortened one begins: "optim" for "optimizer".
template <class Range>
std::string near_name(std::string_view asked, const Range& known) {
  std::string near = nearest_name(asked, known);
  if (!near.empty() || asked.size() < 3) return near;
  for (const auto& name : known) {
    if (!std::string_view(name).starts_with(asked)) continue;
    if (!near.empty()) return "";
    near = std::string(name);
  }
  return near;
}

}  // namespace

Tables::Tables(ConfigTable root, std::vector<ConfigProblem>& problems) : problems_(problems), file_(root.source) {
  take_table(root, "");
  // Tables the recipe leaves out: their defaults, and what they require.
  for (const Section& part : sections()) {
    if (host_.find(std::string_view(part.path)) != host_.end()) continue;
    ConfigTable empty;
    empty.source = file_;
    const std::size_t before = problems_.size();
    take_section(empty, part);
    constexpr std::string_view kMissing = "missing";
    for (std::size_t i = before; i < problems_.size(); ++i) {
      std::string& message = problems_[i].message;
      if (message.starts_with(kMissing))
        message.insert(kMissing.size(), " with its table [" + std::string(part.path) + "]");
    }
  }
}

void Tables::take_table(ConfigTable& table, const std::string& path) {
  for (auto& [key, value] : table.values) {
    const std::string full = path.empty() ? key : path + "." + key;
    auto* nested = std::get_if<std::shared_ptr<ConfigTable>>(&value.data);
    const Section* part = find_section(full);
    if (nested == nullptr && (part != nullptr || is_group(full))) {
      problems_.push_back({value.source, full, "expected table, found " + value.to_text()});
    } else if (part != nullptr) {
      take_section(**nested, *part);
    } else if (nested != nullptr && is_group(full)) {
      take_table(**nested, full);
    } else {
      unknown_table(value, path, key);
    }
  }
}

void Tables::take_section(ConfigTable& table, const Section& part) {
  ConfigTable own, options;
  own.source = options.source = table.source;
  for (auto& [key, value] : table.values) {
    if (declares(part, key)) {
      own.values.emplace(key, std::move(value));
    } else if (part.kind != nullptr) {
      options.values.emplace(key, std::move(value));
    } else {
      unknown_key(value, part, key);
    }
  }
  check_options(own, part.path, part.keys, {}, problems_);
  host_.insert_or_assign(part.path, std::move(own));
  options_.insert_or_assign(part.path, std::move(options));
}

void Tables::unknown_table(const ConfigValue& value, const std::string& within, const std::string& name) {
  const bool table = std::holds_alternative<std::shared_ptr<ConfigTable>>(value.data);
  const std::string prefix = within.empty() ? "" : within + ".", path = prefix + name;
  std::string message = table ? "unknown table" : "unknown key";
  if (const std::string_view other = other_name(name); !other.empty()) {
    problems_.push_back({value.source, path, message + "; here it is " + std::string(other)});
    return;
  }
  if (const std::string home = home_of(name, ""); !table && !home.empty()) {
    problems_.push_back({value.source, path, message + "; it belongs to a table: " + home});
    return;
  }
  std::vector<std::string> known;
  for (const Section& candidate : sections()) {
    const std::string_view whole = candidate.path;
    if (!whole.starts_with(prefix)) continue;
    const std::string first(whole.substr(prefix.size(), whole.find('.', prefix.size()) - prefix.size()));
    if (std::find(known.begin(), known.end(), first) == known.end()) known.push_back(first);
  }
  if (prefix.empty() && !table) known.emplace_back("include");
  // "pipeline" for "parallel.pipeline".
  const auto inner = std::find_if(sections().begin(), sections().end(), [&](const Section& candidate) {
    return std::string_view(candidate.path).ends_with("." + name);
  });
  if (table && inner != sections().end()) {
    message += "; did you mean \"" + std::string(inner->path) + "\"?";
  } else if (const std::string near = near_name(name, known); !near.empty()) {
    message += "; did you mean \"" + prefix + near + "\"?";
  } else {
    message += "; known here:";
    for (const std::string& one : known) message += " " + prefix + one;
  }
  problems_.push_back({value.source, path, message});
}

void Tables::unknown_key(const ConfigValue& value, const Section& part, const std::string& key) {
  const std::string full = std::string(part.path) + "." + key;
  if (const std::string_view other = other_name(key); !other.empty()) {
    problems_.push_back({value.source, full, "unknown key; here it is " + std::string(other)});
    return;
  }
  if (const std::string home = home_of(key, part.path); !home.empty()) {
    problems_.push_back({value.source, full, "unknown key; it belongs to another table: " + home});
    return;
  }
  // A misspelt name of another trainer leads to our own one.
  std::vector<std::string_view> own, all(other_names().begin(), other_names().end());
  for (const OptionSpec& spec : part.keys) own.emplace_back(spec.name);
  const std::size_t others = all.size();
  all.insert(all.end(), own.begin(), own.end());
  const std::string near = near_name(key, own), nearest = nearest_name(key, all);
  std::string message = "unknown key";
  const bool other = std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(others), nearest) !=
                     all.begin() + static_cast<std::ptrdiff_t>(others);
  if (!nearest.empty() && other &&
      edit_distance(key, nearest) < (near.empty() ? key.size() : edit_distance(key, near))) {
    message += "; did you mean \"" + nearest + "\"? Here it is " + std::string(other_name(nearest));
  } else if (!near.empty()) {
    message += "; did you mean \"" + near + "\"?";
  } else {
    message += "; known here:";
    for (const std::string_view name : own) message += " " + std::string(name);
  }
  problems_.push_back({value.source, full, message});
}

bool Tables::sound(std::string_view key) const {
  return std::none_of(problems_.begin(), problems_.end(), [&](const ConfigProblem& problem) {
    const std::string_view at = problem.key;
    return at.starts_with(key) && (at.size() == key.size() || at[key.size()] == '[' || at[key.size()] == '.');
  });
}

const ConfigValue* Tables::find(std::string_view key) const {
  const auto [path, name] = split(key);
  const auto table = host_.find(path);
  ESPALIER_ASSERT(table != host_.end());
  return table->second.find(name);
}

bool Tables::has(std::string_view key) const { return find(key) != nullptr && sound(key); }

bool Tables::given(std::string_view key) const { return has(key) && find(key)->source.origin != "default"; }

ConfigView Tables::view(std::string_view path) const { return {host_.find(path)->second, std::string(path)}; }

bool Tables::boolean(std::string_view key) const {
  const auto [path, name] = split(key);
  return has(key) && view(path).boolean(name);
}

std::int64_t Tables::integer(std::string_view key) const { return integer(key, 0); }

std::int64_t Tables::integer(std::string_view key, std::int64_t otherwise) const {
  const auto [path, name] = split(key);
  return has(key) ? view(path).integer(name) : otherwise;
}

double Tables::number(std::string_view key) const { return number(key, 0); }

double Tables::number(std::string_view key, double otherwise) const {
  const auto [path, name] = split(key);
  return has(key) ? view(path).number(name) : otherwise;
}

std::string Tables::string(std::string_view key) const { return string(key, ""); }

std::string Tables::string(std::string_view key, std::string_view otherwise) const {
  const auto [path, name] = split(key);
  return has(key) ? view(path).string(name) : std::string(otherwise);
}

std::vector<std::string> Tables::strings(std::string_view key) const {
  const auto [path, name] = split(key);
  return has(key) ? view(path).strings(name) : std::vector<std::string>();
}

std::vector<std::int64_t> Tables::integers(std::string_view key) const {
  const auto [path, name] = split(key);
  return has(key) ? view(path).integers(name) : std::vector<std::int64_t>();
}

ConfigSource Tables::source(std::string_view key) const {
  const ConfigValue* value = find(key);
  if (value != nullptr && value->source.origin != "default") return value->source;
  const auto table = host_.find(split(key).first);
  return table->second.source.file.empty() ? file_ : table->second.source;
}

void Tables::put(std::string_view key, std::string value) {
  const auto [path, name] = split(key);
  ConfigValue added;
  added.data = std::move(value);
  added.source.origin = "derived";
  host_.find(path)->second.values.insert_or_assign(std::string(name), std::move(added));
}

void Tables::complain(std::string_view key, std::string message) {
  problems_.push_back({source(key), std::string(key), std::move(message)});
}

}  // namespace espalier::app
