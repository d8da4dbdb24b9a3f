#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "train/batch_schedule.hpp"

namespace espalier::app {

/// What a resume asks of its dataset.
struct DataOrder {
  bool continues = false;        ///< Dataset::continues of the saved fingerprint, for the samples consumed
  bool takes_more_plans = false; ///< the dataset has an option planned_samples
};

/// Whether a run may go on from a checkpoint of its own folder: `now` is the manifest it would write itself.
/// @throws IoError naming what differs in a way that would silently make it another run: seed, tokenizer, samples.
void check_same_run(const Manifest& saved, const Manifest& now, const DataOrder& order);

/// @throws IoError when the optimizer's state was written by another optimizer, although names and shapes may fit.
void check_same_optimizer(const Manifest& saved, const Manifest& now);

/// @throws ConfigError when the recipe's batch sizes put the saved step at other samples than the checkpoint does: steps, samples and
/// the length of the run would no longer belong together.
void check_same_batches(const TrainState& saved, const BatchSchedule& batches);

/// What else is not as it was when the checkpoint was written, a line each: layout, provider, keys of [model], [train], [optimizer].
std::vector<std::string> differences(const Manifest& saved, const Manifest& now);

}  // namespace espalier::app
