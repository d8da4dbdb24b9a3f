#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/sections.hpp"
#include "espalier/config.hpp"

namespace espalier::app {

/// The recipe cut into its sections, after the checks that need one table at a time: unknown tables and keys, types,
/// ranges. Reading is by full key ("train.lr"); a key with a problem reads as absent, so that later checks can go on.
class Tables {
 public:
  /// Appends to `problems`, which is kept by reference: has() looks there.
  Tables(ConfigTable root, std::vector<ConfigProblem>& problems);

  /// Whether there is a sound value: given, or a default.
  bool has(std::string_view key) const;
  /// Whether a source of the recipe gave it, and it is sound.
  bool given(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const;
  double number(std::string_view key) const;
  double number(std::string_view key, double otherwise) const;
  std::string string(std::string_view key) const;
  std::string string(std::string_view key, std::string_view otherwise) const;
  std::vector<std::string> strings(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  ConfigView view(std::string_view section) const;

  /// Where the value was given; else where its table was opened; else the file.
  ConfigSource source(std::string_view key) const;
  /// Gives a key a value that no source has given.
  void put(std::string_view key, std::string value);
  void complain(std::string_view key, std::string message);
  const ConfigValue* find(std::string_view key) const;
  /// What the plugin of a section is asked to take.
  ConfigTable& options(std::string_view section) { return options_.at(std::string(section)); }

 private:
  void take_table(ConfigTable& table, const std::string& path);
  void take_section(ConfigTable& table, const Section& section);
  void unknown_table(const ConfigValue& value, const std::string& within, const std::string& name);
  void unknown_key(const ConfigValue& value, const Section& section, const std::string& key);
  bool sound(std::string_view key) const;

  std::vector<ConfigProblem>& problems_;
  ConfigSource file_;
  std::map<std::string, ConfigTable, std::less<>> host_;
  std::map<std::string, ConfigTable, std::less<>> options_;
};

}  // namespace espalier::app
