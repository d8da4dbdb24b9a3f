#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "espalier/error.hpp"
#include "espalier/export.hpp"

namespace espalier {

// --- what a component declares ---------------------------------------------------------------------------------------

enum class OptionType : std::uint8_t {
  boolean,
  integer,   ///< 64-bit; 9.0 is refused
  number,    ///< integers are accepted; nan and inf are refused
  string,
  integers,  ///< arrays
  numbers,
  strings,
  table,     ///< one nested table, checked by `nested`
  tables,    ///< array of tables, each checked by `nested`
};

/// One option: constant data, so that a descriptor needs no constructor.
struct OptionSpec {
  const char* name;
  OptionType type;
  /// TOML text of the default ("1e-8", "\"auto\"", "[0.9, 0.95]", "true"); null: required. "" = optional without a default:
  /// ConfigView::has tells.
  const char* fallback;
  const char* help;                ///< one line, with the unit
  double min = -std::numeric_limits<double>::infinity();  ///< inclusive; each element of arrays
  double max = std::numeric_limits<double>::infinity();
  const char* choices = nullptr;   ///< "a|b|c": what a string may be
  const OptionSpec* nested = nullptr;
  std::size_t nested_count = 0;
};

// --- what a recipe holds ---------------------------------------------------------------------------------------------

/// Where a value came from.
struct ConfigSource {
  std::string file;    ///< path as given; "" for defaults
  int line = 0;
  int column = 0;
  std::string origin;  ///< "recipe", "include", "--set", "environment", "default"
};

class ConfigTable;

/// A value with its source. Strings, numbers, arrays and tables as in TOML.
class ESPALIER_API ConfigValue {
 public:
  using Array = std::vector<ConfigValue>;
  using Data = std::variant<bool, std::int64_t, double, std::string, Array, std::shared_ptr<ConfigTable>>;

  Data data;
  ConfigSource source;

  /// "integer", "float", "string", "boolean", "array", "table": for messages.
  std::string_view type_name() const;
  /// TOML text of the value.
  std::string to_text() const;
};

/// A table, keys in order of their names, with where it was opened.
class ESPALIER_API ConfigTable {
 public:
  std::map<std::string, ConfigValue, std::less<>> values;
  ConfigSource source;

  const ConfigValue* find(std::string_view key) const;
};

/// One thing wrong with a recipe.
struct ConfigProblem {
  ConfigSource source;
  std::string key;      ///< full path: "optimizer.betas"
  std::string message;  ///< expected, found, nearest name
};

/// "recipe.toml:12:3: optimizer.betas: expected …"; without file: "--set optimizer.betas: …".
ESPALIER_API std::string to_string(const ConfigProblem& problem);

/// Checks a table against what a component declares: unknown keys (with the nearest known one), types, ranges, choices, missing
/// required keys. Fills defaults in, so that a later read always finds a value. Appends to `problems`; never throws for a user's mistake.
/// @param path  of the table, "optimizer"; "" for the root.
/// @param reserved  keys of the table that belong to the host ("plugin", "device", "size"): left alone.
ESPALIER_API void check_options(ConfigTable& table, std::string_view path, std::span<const OptionSpec> specs,
                                std::span<const std::string_view> reserved, std::vector<ConfigProblem>& problems);

/// Throws ConfigError with all problems, one a line, when there are any.
ESPALIER_API void throw_if_any(std::span<const ConfigProblem> problems);

/// A component's own table after check_options: each declared option is there with its type. Reading an undeclared one is our own bug.
/// Does not own the table.
class ESPALIER_API ConfigView {
 public:
  ConfigView(const ConfigTable& table, std::string path) : table_(&table), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  /// False for an optional one ("" default) that is absent.
  bool has(std::string_view key) const;
  /// Whether the user wrote it, rather than the default.
  bool given(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  std::string string(std::string_view key) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;
  ConfigView table(std::string_view key) const;
  std::vector<ConfigView> tables(std::string_view key) const;
  /// @throws ConfigError "file:line:column: path.key: message".
  [[noreturn]] void fail(std::string_view key, std::string_view message) const;

 private:
  const ConfigValue& at(std::string_view key) const;
  const ConfigTable* table_;
  std::string path_;
};

}  // namespace espalier
