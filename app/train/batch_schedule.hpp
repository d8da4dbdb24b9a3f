#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace espalier::app {

/// Global batch from `start` in steps of `increment` over `samples` samples. Off when samples is 0.
struct BatchRamp {
  std::int64_t start = 0;
  std::int64_t increment = 0;
  std::int64_t samples = 0;
};

/// From this global batch size on, this micro-batch size.
struct MicroBatchStep {
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;
};

/// How many samples a step takes, over consumed samples. Sizes in samples.
struct BatchSpec {
  std::int64_t global_batch = 0;              ///< final
  std::int64_t micro_batch = 0;               ///< until the first entry of micro_batch_schedule applies
  std::vector<MicroBatchStep> micro_batches;  ///< ascending global_batch
  BatchRamp ramp;
};

/// One step's share of work.
struct StepBatch {
  std::int64_t global_batch = 0;   ///< samples of the step over all data-parallel ranks
  std::int64_t micro_batch = 0;    ///< samples of a micro-batch of one rank
  std::int64_t micro_batches = 0;  ///< micro-batches a rank: gradient accumulation steps
  bool operator==(const StepBatch&) const = default;
};

/// Steps of equal shape: the plan of a run is a short list of these.
struct BatchPhase {
  StepBatch batch;
  std::int64_t first_step = 0;  ///< counted from 0
  std::int64_t steps = 0;
  std::int64_t first_sample = 0;
};

/// Batch sizes as a pure function of consumed samples. Source: Megatron-LM, RampupBatchsizeNumMicroBatchesCalculator.
class BatchSchedule {
 public:
  /// @param data  size of the data-parallel group. The spec has passed the recipe's checks for it.
  BatchSchedule(const BatchSpec& spec, int data);

  /// Of the step that starts when `consumed` samples have been trained on. No allocation.
  StepBatch at(std::int64_t consumed) const;
  /// Steps before `consumed` samples were reached, and the samples of `steps` steps: inverse functions on step borders.
  std::int64_t steps_for(std::int64_t samples) const;
  std::int64_t samples_after(std::int64_t steps) const;
  /// Every phase of a run of `train_samples`, in order. A last batch that would be incomplete is left out, as Megatron
  /// does.
  std::vector<BatchPhase> phases(std::int64_t train_samples) const;

 private:
  BatchSpec spec_;
  std::int64_t data_ = 1;
};

}  // namespace espalier::app
