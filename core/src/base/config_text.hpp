#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "espalier/config.hpp"

/// Text helpers shared by the config*.cpp files.
namespace espalier {

/// Shortest text that reads back to the same number: "1", "0.1", "1e-08".
std::string config_number_text(double value);
/// A TOML basic string, quotes included.
std::string config_string_text(std::string_view text);
/// A key as TOML writes it: bare where it can be.
std::string config_key_text(std::string_view key);
/// "optimizer" + "betas" = "optimizer.betas".
std::string config_join(std::string_view path, std::string_view key);

/// Reads the TOML text of a default: a boolean, number, string, an array of those, or an empty table "{}". Every value
/// has the origin "default". Nothing when the text is anything else.
std::optional<ConfigValue> parse_default(std::string_view text);

}  // namespace espalier
