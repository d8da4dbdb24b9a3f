#pragma once

#include <string>
#include <vector>

#include "espalier/config.hpp"

namespace espalier::app {

/// Variable with overrides that a recipe file may still replace: assignments separated by ';' or new lines.
inline constexpr const char* kSetVariable = "ESPALIER_SET";

/// Reads a recipe with what it includes (`include = ["base.toml"]`, relative to the file that says so; what a file says
/// itself wins over what it includes, and a later include over an earlier one), and lays the sources over each other:
/// command line > file > environment. Appends to `problems`.
/// @param text  TOML instead of the file's; "": the file is read.
/// @param environment  value of ESPALIER_SET; "" for none.
/// @throws IoError when the recipe itself cannot be read.
ConfigTable read_sources(const std::string& file, const std::string& text, const std::vector<std::string>& overrides,
                         const std::string& environment, std::vector<ConfigProblem>& problems);

}  // namespace espalier::app
