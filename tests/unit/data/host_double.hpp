#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "espalier/config.hpp"
#include "espalier/host.hpp"
#include "options.hpp"

namespace espalier::testing {

/// A host as a dataset sees it: facts, a world, and a log that is kept.
class HostDouble : public HostContext {
 public:
  explicit HostDouble(std::unique_ptr<Communicator> world) : world_(std::move(world)) {
    facts_.model.seq_length = 32;
    facts_.seed = 1234;
  }

  void log(LogLevel level, std::string_view text) override { lines_.emplace_back(level, text); }
  const RunFacts& facts() const override { return facts_; }
  Communicator& communicator(Group) override { return *world_; }
  ThreadPool& threads() override { throw Error(ExitCode::internal, "a dataset needs no threads"); }
  Backend& backend() override { throw Error(ExitCode::internal, "a dataset needs no backend"); }

  RunFacts& change_facts() { return facts_; }
  void clear_log() { lines_.clear(); }
  /// Lines that contain `part`.
  std::vector<std::string> logged(const std::string& part) const {
    std::vector<std::string> found;
    for (const auto& [level, text] : lines_) {
      if (text.find(part) != std::string::npos) {
        found.push_back(text);
      }
    }
    return found;
  }
  std::vector<std::string> logged(LogLevel wanted) const {
    std::vector<std::string> found;
    for (const auto& [level, text] : lines_) {
      if (level == wanted) {
        found.push_back(text);
      }
    }
    return found;
  }

 private:
  std::unique_ptr<Communicator> world_;
  RunFacts facts_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

/// One key of a table under construction.
struct Key {
  std::string name;
  ConfigValue::Data data;
};

inline ConfigTable table_of(const std::vector<Key>& keys, int line = 1) {
  ConfigTable table;
  table.source = {"recipe.toml", line, 1, "recipe"};
  for (const Key& key : keys) {
    table.values[key.name] = {key.data, {"recipe.toml", line, 1, "recipe"}};
  }
  return table;
}

/// An array of tables, entry k on line 10 + k of "recipe.toml".
inline ConfigValue::Data tables_of(const std::vector<std::vector<Key>>& entries) {
  ConfigValue::Array array;
  int line = 10;
  for (const auto& entry : entries) {
    auto table = std::make_shared<ConfigTable>(table_of(entry, line));
    array.push_back({std::move(table), {"recipe.toml", line, 1, "recipe"}});
    ++line;
  }
  return array;
}

/// The [data] table, checked as the host checks it.
inline ConfigTable checked_data_table(const std::vector<Key>& keys) {
  ConfigTable table = table_of(keys);
  std::vector<ConfigProblem> problems;
  check_options(table, "data", {data_indexed::kDataOptions, data_indexed::kDataOptionCount}, {}, problems);
  throw_if_any(problems);
  return table;
}

}  // namespace espalier::testing
