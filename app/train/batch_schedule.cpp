#include "train/batch_schedule.hpp"

#include <algorithm>
#include <limits>

#include "espalier/error.hpp"

namespace espalier::app {

namespace {

constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

std::int64_t increments(const BatchSpec& spec) {
  return spec.ramp.samples == 0 ? 0 : (spec.global_batch - spec.ramp.start) / spec.ramp.increment;
}

/// Increments made when `consumed` samples have been trained on. Megatron divides in floating point; this is the exact
/// value.
std::int64_t level(const BatchSpec& spec, std::int64_t consumed) {
  const std::int64_t all = increments(spec);
  if (all == 0 || consumed >= spec.ramp.samples) return all;
  return consumed * all / spec.ramp.samples;
}

/// First consumed count with a higher level.
std::int64_t level_end(const BatchSpec& spec, std::int64_t at) {
  const std::int64_t all = increments(spec);
  return at >= all ? kForever : ceil_div((at + 1) * spec.ramp.samples, all);
}

}  // namespace

BatchSchedule::BatchSchedule(const BatchSpec& spec, int data) : spec_(spec), data_(data) {
  ESPALIER_ASSERT(data >= 1 && spec.global_batch >= 1 && spec.micro_batch >= 1);
}

StepBatch BatchSchedule::at(std::int64_t consumed) const {
  const std::int64_t made = level(spec_, consumed);
  StepBatch batch;
  batch.global_batch = spec_.ramp.samples == 0 || made == increments(spec_)
                           ? spec_.global_batch
                           : spec_.ramp.start + made * spec_.ramp.increment;
  batch.micro_batch = spec_.micro_batch;
  for (const MicroBatchStep& step : spec_.micro_batches) {
    if (step.global_batch <= batch.global_batch) batch.micro_batch = step.micro_batch;
  }
  // Below one only where nothing is trained: RecipeRequest::any_replicas.
  batch.micro_batches = std::max<std::int64_t>(1, batch.global_batch / (batch.micro_batch * data_));
  return batch;
}

std::int64_t BatchSchedule::steps_for(std::int64_t samples) const {
  std::int64_t consumed = 0, steps = 0;
  while (consumed < samples) {
    const std::int64_t size = at(consumed).global_batch;
    const std::int64_t end = std::min(level_end(spec_, level(spec_, consumed)), samples);
    const std::int64_t count = ceil_div(end - consumed, size);
    if (consumed + count * size > samples) return steps + count - 1;  // the last one would be incomplete
    consumed += count * size;
    steps += count;
  }
  return steps;
}

std::int64_t BatchSchedule::samples_after(std::int64_t steps) const {
  std::int64_t consumed = 0;
  while (steps > 0) {
    const std::int64_t size = at(consumed).global_batch;
    const std::int64_t end = level_end(spec_, level(spec_, consumed));
    const std::int64_t count = end == kForever ? steps : std::min(steps, ceil_div(end - consumed, size));
    consumed += count * size;
    steps -= count;
  }
  return consumed;
}

std::vector<BatchPhase> BatchSchedule::phases(std::int64_t train_samples) const {
  std::vector<BatchPhase> list;
  std::int64_t consumed = 0, step = 0;
  while (true) {
    const StepBatch batch = at(consumed);
    const std::int64_t end = std::min(level_end(spec_, level(spec_, consumed)), train_samples);
    std::int64_t count = ceil_div(std::max<std::int64_t>(0, end - consumed), batch.global_batch);
    if (consumed + count * batch.global_batch > train_samples) --count;
    if (count <= 0) return list;
    list.push_back({batch, step, count, consumed});
    consumed += count * batch.global_batch;
    step += count;
  }
}

}  // namespace espalier::app
