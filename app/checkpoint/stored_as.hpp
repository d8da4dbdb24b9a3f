#pragma once

#include <span>
#include <string_view>

#include "espalier/optimizer.hpp"
#include "espalier/parallel/data.hpp"
#include "espalier/parallel/parameter.hpp"

namespace espalier::app {

/// How a kind of state relates to parameters; "master", and what the optimizer does not declare, are like a parameter.
Keep keep_of(std::span<const StateSpec> specs, std::string_view state);

/// What a piece of state is a part of in a checkpoint: its parameter; for Keep::per_tensor one number under the
/// parameter's name; for Keep::global one number under no name.
LocalParameter stored_as(const StatePiece& piece, std::span<const LocalParameter> parameters,
                         std::span<const StateSpec> specs);

}  // namespace espalier::app
