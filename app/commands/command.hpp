#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::app {

/// The frame of the subcommands: each declares its arguments as constant data, cli.cpp reads the command line for all
/// of them (it alone knows the library that does), and the command gets what the user wrote as Args.

enum class ArgType : std::uint8_t { flag, string, integer, number };

/// One argument. A name with dashes ("--out") is an option, one in capitals ("RECIPE") a positional argument.
struct ArgSpec {
  const char* name;
  ArgType type;
  const char* help;  ///< one line, with the unit
  bool required = false;
  const char* fallback = nullptr;  ///< text of the default; null: none, Args::has tells
  bool repeated = false;           ///< may be given several times: Args::strings
  const char* value_name = "";     ///< what help calls the value: "FILE"
};

/// What the user wrote. Reading an argument the command did not declare is our own bug.
class Args {
 public:
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::map<std::string, ArgType, std::less<>> declared;

  /// Given, or defaulted.
  bool has(std::string_view name) const;
  bool flag(std::string_view name) const;
  /// Of an argument that is required or has a default; "" where it is absent.
  std::string string(std::string_view name) const;
  std::vector<std::string> strings(std::string_view name) const;
  /// @throws ConfigError naming the argument when the text is no number; absent without default: our own bug.
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;

 private:
  const std::vector<std::string>* find(std::string_view name) const;
};

struct Command {
  const char* name;     ///< "train", "config check": words are nested subcommands
  const char* summary;  ///< one line
  const char* lesson;   ///< what --help says below the options: when to use it, examples
  std::span<const ArgSpec> args;
  /// Returns the exit code of the program. Errors are thrown: main prints them.
  int (*run)(const Args& args);
  /// Says the same on every rank of a job: under a launcher only the first rank runs it.
  bool speaks_once = false;
};

/// Every subcommand, in the order --help shows them: registry.cpp. A new one adds its line there.
std::span<const Command* const> all_commands();

/// Arguments that every command with a recipe shares; recipe_request in config/load.hpp reads them.
inline constexpr ArgSpec kRecipeArg{"RECIPE", ArgType::string, "the recipe, a TOML file (docs/recipe.md)", true};
inline constexpr ArgSpec kSetArg{
    "--set", ArgType::string, "override one key: --set train.lr=1e-4 (value in TOML; may be repeated)", false, nullptr,
    true,    "KEY=VALUE"};

}  // namespace espalier::app
