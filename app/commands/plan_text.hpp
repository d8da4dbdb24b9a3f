#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/recipe.hpp"
#include "plan/dry_run.hpp"

/// What `config check` and `config explain` print of a grid and its stages. Every text ends with a new line.
namespace espalier::app {

/// "1,234,567".
std::string grouped(std::int64_t value);

/// "world 384 = tensor 4 × data 8 × pipeline 12".
std::string grid_text(const Grid& grid);

/// Which ranks form which group: a line for the order, one for each kind of group.
std::string groups_text(const Grid& grid, std::string_view in_front);

/// "embedding, blocks 0 to 4": the layers of a stage, chunk by chunk.
std::string layers_text(std::span<const LayerRange> parts, std::int64_t layers);

/// A line a stage: its layers, elements and computed bytes of one of its ranks.
std::string stages_text(const Recipe& recipe, const DryRunReport& report, std::string_view in_front);

}  // namespace espalier::app
