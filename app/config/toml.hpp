#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "espalier/config.hpp"

namespace espalier::app {

/// Reads TOML text into a table; every value carries its source.
/// @param file  for messages, as the user gave it; "" for text that is no file.
/// @param origin  "recipe", "include", "--set", "environment".
/// Appends to `problems` what is no TOML, and dates (no key takes one); the table is then what could be read.
ConfigTable parse_toml(std::string_view text, const std::string& file, const std::string& origin,
                       std::vector<ConfigProblem>& problems);

/// Reads one assignment, "train.lr=1e-4". A value that is a bare word stands for a string, so that
/// --set optimizer.plugin=optim_fp16 needs no quotes within quotes.
ConfigTable parse_assignment(const std::string& text, const std::string& origin, std::vector<ConfigProblem>& problems);

/// Lays `over` on `table`: tables are merged, anything else is replaced.
void merge(ConfigTable& table, const ConfigTable& over);

/// "3" → "\"3\""-style quoting of a key or text for TOML output.
std::string toml_string(std::string_view text);

}  // namespace espalier::app
