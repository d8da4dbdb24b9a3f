#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/open.hpp"
#include "espalier/parallel/data.hpp"
#include "model/parameters.hpp"

namespace espalier::app {

/// What a rank of one stage holds: computed by the same code that a run reserves its memory with. The rank is the first
/// of its tensor and data groups.
struct StagePlan {
  int stage = 0;
  std::vector<LayerRange> parts;  ///< layers, a range a chunk: 0 the embedding, 1 … L blocks, L + 1 the head
  std::int64_t parameters = 0;    ///< elements of the rank's own pieces
  StateBytes state;
  std::size_t activations = 0;  ///< bytes of the arena: activations and messages
};

/// What a dry run found out.
struct DryRunReport {
  std::vector<StagePlan> stages;   ///< ascending; some are left out when there are very many
  std::vector<std::string> notes;  ///< what could not be checked here, and why: one line each
  bool activations_known = true;   ///< whether StagePlan::activations were computed
};

/// Assembles the run as each stage's first rank would, without a job: strategies and optimizer are made, the layers
/// cut, all schedules that training and evaluation will reach are proved, parameters placed and memory planned. Opens
/// no data and no device, reserves no memory for the model.
/// @throws what the start of the run would throw, with the place in the recipe in front where the message names a table
/// or plugin
///         of it.
DryRunReport dry_run(OpenRecipe& opened);

}  // namespace espalier::app
