#pragma once

#include <span>
#include <vector>

#include "espalier/export.hpp"
#include "espalier/parallel/pipeline.hpp"

namespace espalier {

/// Receives of one kind (activations, gradients) that a stage may have posted and not yet used.
inline constexpr int kMostOpenReceives = 64;

/// The instruction lists of all stages for one mode and count.
struct ScheduleLists {
  Mode mode = Mode::train;
  int chunks = 1;
  int micro_batches = 1;
  std::vector<std::vector<Instruction>> stages;
};

/// Asks for the list of every stage. Pure.
ESPALIER_API ScheduleLists lists_of(const PipelineParallel& pipeline, Mode mode, int micro_batches);

/// Proves a schedule sound before it runs:
/// - each chunk does each micro-batch once: forward, then (train) its input half, then its weight half, fused or apart;
/// - both halves of a chunk come in ascending order of micro-batches: gradients are always added in one order;
/// - activations go from part k to part k + 1 of the model and gradients back, each once, sent after and received before the work
///   that needs them; at most kMostOpenReceives of a kind are posted ahead of their use;
/// - train ends with reduce_gradients after all weight halves, reduce_tied_gradients on first and last stage of several, step;
/// - all communication (messages, the data group's reductions, the tied pair, the verdict) has one order that agrees with every list even
///   if each operation waits for its partners and nothing overtakes: no library, no message size, can make the stages wait for each
///   other. Ranks of a tensor or data group share their stage's list, so an order of the stages is an order of all ranks in all groups;
/// - what a forward opens, its weight half closes.
/// What it cannot prove it refuses.
/// @returns for each stage the most activations (micro-batch and chunk) it keeps at once.
/// @throws PluginError naming stage, index and text of the instruction that breaks a rule, or at which a stage would wait for ever.
ESPALIER_API std::vector<int> check_schedule(const ScheduleLists& lists);

/// Durations of one chunk's work, in any unit; `backward` takes both halves.
struct WorkDurations {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

/// Walks sound lists on a virtual clock where only forward and backward take time.
/// @returns the idle share of each stage, in [0, 1): time without work over the time until the last stage is done.
ESPALIER_API std::vector<double> idle_shares(const ScheduleLists& lists, const WorkDurations& durations);

}  // namespace espalier
