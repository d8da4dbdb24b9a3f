#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/facts.hpp"
#include "espalier/parallel/parameter.hpp"

namespace espalier::app {

/// Model classes of transformers that compute what our model computes.
enum class Family : std::uint8_t {
  bloom,  ///< ALiBi, LayerNorm after the embedding, q, k, v of a head together
  gpt2,   ///< learned positions, no LayerNorm after the embedding, linear weights as [in, out], all q, all k, all v
};

std::string_view name_of(Family family);

/// The family that can hold a model of this shape.
/// @throws IoError naming the switch no family has.
Family family_of(const ModelShape& shape);

/// How a parameter lies in a Hugging Face file.
struct FileLayout {
  std::string name;                 ///< without "transformer.", which all but the head have in front
  std::vector<std::int64_t> shape;  ///< as stored
  bool transposed = false;          ///< stored as [in, out]
  bool parts_apart = false;  ///< fused q, k, v: all heads' q, then all k, then all v, where we keep a head together
  /// The name transformers writes.
  std::string full_name() const { return name == "lm_head.weight" ? name : "transformer." + name; }
};
FileLayout file_layout(Family family, const Parameter& parameter);

/// Where output row `row` (logical: head · 3 · head_dim + part · head_dim + channel) of a fused q, k, v lies when the
/// parts are apart.
inline std::int64_t apart_row(const ModelShape& shape, std::int64_t row) {
  const std::int64_t width = shape.head_dim();
  const std::int64_t head = row / (3 * width), part = row / width % 3, channel = row % width;
  return part * shape.hidden + head * width + channel;
}

/// Tensors that files of a family may hold besides parameters and that are no weights: GPT-2's causal masks.
bool is_buffer(Family family, std::string_view name);

}  // namespace espalier::app
