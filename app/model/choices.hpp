#pragma once

#include <cstdint>

/// Choices of the model code that a recipe makes.
namespace espalier::app {

enum class EmbeddingInit : std::uint8_t { normal, xavier_uniform };
enum class Recompute : std::uint8_t { none, selective, full };

}  // namespace espalier::app
