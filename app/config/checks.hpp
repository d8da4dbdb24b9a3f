#pragma once

#include "config/recipe.hpp"
#include "config/tables.hpp"

namespace espalier::app {

/// The combinations that cannot work, and what follows from several keys together. Each reads what is sound in the
/// tables, fills its part of the recipe and complains about the rest. In this order, since later ones use what earlier
/// ones found.

void fill_model(Tables& tables, Recipe& recipe);
/// @param world  ranks of the job; 0: the smallest that fits the recipe.
/// @param add_plugins  a size that needs a plugin where the recipe has none gets the one that comes with the program.
void fill_grid(Tables& tables, int world, bool add_plugins, Recipe& recipe);
void fill_batch(Tables& tables, Recipe& recipe);
void fill_rate(Tables& tables, Recipe& recipe);
/// Everything that is one key for one field.
void fill_rest(Tables& tables, Recipe& recipe);

/// Patterns of weight decay that no parameter has. After fill_rest; needs a sound model.
void check_decay(Tables& tables, const Recipe& recipe);

/// Recipe::keys and Recipe::effective.
void fill_effective(const Tables& tables, Recipe& recipe);

}  // namespace espalier::app
