#pragma once

#include <string>

#include "espalier/facts.hpp"

namespace espalier::app {

/// A recipe for a checkpoint made of somebody else's weights, so that `generate`, `eval` and `numerics` can open it:
/// the model's shape, one rank, FP32, and no training to speak of. To train on, a recipe of one's own names the
/// checkpoint.
std::string converted_recipe(const ModelShape& shape, const std::string& origin, const std::string& tokenizer);

}  // namespace espalier::app
