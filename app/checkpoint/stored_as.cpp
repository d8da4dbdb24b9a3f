#include "checkpoint/stored_as.hpp"

#include <algorithm>

#include "espalier/error.hpp"

namespace espalier::app {

Keep keep_of(std::span<const StateSpec> specs, std::string_view state) {
  const auto spec = std::ranges::find(specs, state, [](const StateSpec& one) { return std::string_view(one.name); });
  return spec == specs.end() ? Keep::like_parameter : spec->keep;
}

LocalParameter stored_as(const StatePiece& piece, std::span<const LocalParameter> parameters,
                         std::span<const StateSpec> specs) {
  const Keep keep = keep_of(specs, piece.state);
  ESPALIER_ASSERT((keep == Keep::global) == (piece.parameter < 0));
  LocalParameter result;
  if (keep != Keep::global) result = parameters[static_cast<std::size_t>(piece.parameter)];
  if (piece.whole) {
    const Shape& shape = result.parameter.shape;
    result.placement = {Copies::whole, -1, 0, shape[0], shape[0], shape};
  }
  if (keep == Keep::like_parameter) return result;
  result.parameter.shape = {1};
  result.placement = {Copies::whole, -1, 0, 1, 1, {1}};
  return result;
}

}  // namespace espalier::app
