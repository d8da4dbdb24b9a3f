#pragma once

#include <span>
#include <vector>

#include "espalier/facts.hpp"
#include "espalier/parallel/parameter.hpp"
#include "model/block.hpp"
#include "model/embedding.hpp"
#include "model/head.hpp"

namespace espalier::app {

/// Where each layer finds its parameters in a rank's list.
struct RolePositions {
  EmbeddingParameters embedding;
  std::vector<BlockParameters> blocks;  ///< by layer number (entry 0 unused); -1 in those that other ranks hold
  HeadParameters head;
};

RolePositions find_roles(const ModelShape& shape, std::span<const LocalParameter> parameters);

/// Heads and MLP columns of this rank, from where the tensor strategy places QKV rows and the first MLP matrix.
struct OwnWidths {
  std::int64_t heads = 0;
  std::int64_t first_head = 0;
  std::int64_t ffn = 0;
};
class ParameterList;
OwnWidths own_widths(const ModelShape& shape, const ParameterList& list, const TensorParallel& tensor);

}  // namespace espalier::app
