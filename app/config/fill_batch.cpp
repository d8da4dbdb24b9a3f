#include <fmt/format.h>

#include <algorithm>

#include "config/checks.hpp"

namespace espalier::app {

namespace {

constexpr const char* kGlobal = "train.global_batch_size";
constexpr const char* kMicro = "train.micro_batch_size";
constexpr const char* kSteps = "train.gradient_accumulation_steps";
constexpr const char* kRamp = "train.rampup_batch_size";
constexpr const char* kSchedule = "train.micro_batch_schedule";

std::int64_t micro_at(const BatchSpec& spec, std::int64_t global) {
  std::int64_t micro = spec.micro_batch;
  for (const MicroBatchStep& step : spec.micro_batches) {
    if (step.global_batch <= global) micro = step.micro_batch;
  }
  return micro;
}

std::string derivation(const Grid& grid) {
  return fmt::format("data {} = world {} / (tensor {} × pipeline {})", grid.data, grid.world(), grid.tensor,
                     grid.pipeline);
}

bool read_schedule(Tables& tables, BatchSpec& spec) {
  if (!tables.has(kSchedule)) return false;
  for (const ConfigView& entry : tables.view("train").tables("micro_batch_schedule")) {
    const MicroBatchStep step{entry.integer("global_batch_size"), entry.integer("micro_batch_size")};
    if (!spec.micro_batches.empty() && spec.micro_batches.back().global_batch >= step.global_batch) {
      tables.complain(kSchedule, fmt::format("global_batch_size must ascend; {} comes after {}", step.global_batch,
                                             spec.micro_batches.back().global_batch));
      return false;
    }
    spec.micro_batches.push_back(step);
  }
  return true;
}

/// Any two of global batch, micro-batch and accumulation steps give the third.
bool read_sizes(Tables& tables, const Grid& grid, BatchSpec& spec) {
  const std::int64_t data = grid.data;
  const bool has_global = tables.has(kGlobal), has_micro = tables.has(kMicro), has_steps = tables.has(kSteps);
  spec.global_batch = tables.integer(kGlobal);
  spec.micro_batch = tables.integer(kMicro);
  const std::int64_t steps = tables.integer(kSteps);
  if (has_global + has_micro + has_steps < 2) {
    // A value that is there but wrong has its own message already.
    if (tables.find(kGlobal) == nullptr && tables.find(kMicro) == nullptr && tables.find(kSteps) == nullptr) {
      tables.complain(kGlobal, "missing; give two of global_batch_size, micro_batch_size, gradient_accumulation_steps");
    } else if (has_global + has_micro + has_steps == 1 && (tables.find(kGlobal) != nullptr) +
                                                                  (tables.find(kMicro) != nullptr) +
                                                                  (tables.find(kSteps) != nullptr) ==
                                                              1) {
      const char* one = has_global ? kGlobal : has_micro ? kMicro : kSteps;
      tables.complain(one, "alone; give two of global_batch_size, micro_batch_size, gradient_accumulation_steps");
    }
    return false;
  }
  if (!has_micro) {
    if (!spec.micro_batches.empty()) {
      tables.complain(kSchedule, "needs micro_batch_size: the size before the first entry applies");
      return false;
    }
    if (spec.global_batch % (steps * data) != 0) {
      tables.complain(kGlobal, fmt::format("{} is not a multiple of gradient_accumulation_steps {} × data {}; {}",
                                           spec.global_batch, steps, data, derivation(grid)));
      return false;
    }
    spec.micro_batch = spec.global_batch / (steps * data);
    return true;
  }
  if (!has_global) {
    const std::int64_t last = spec.micro_batches.empty() ? spec.micro_batch : spec.micro_batches.back().micro_batch;
    spec.global_batch = last * steps * data;
    return true;
  }
  const std::int64_t micro = micro_at(spec, spec.global_batch);
  if (has_steps && spec.global_batch != micro * steps * data) {
    tables.complain(kGlobal,
                    fmt::format("{} ≠ {} × {} × {} (micro_batch_size × gradient_accumulation_steps × data); {}",
                                spec.global_batch, micro, steps, data, derivation(grid)));
    return false;
  }
  if (spec.global_batch % (micro * data) != 0) {
    tables.complain(kGlobal, fmt::format("{} is not a multiple of micro_batch_size {} × data {}; {}", spec.global_batch,
                                         micro, data, derivation(grid)));
    return false;
  }
  return true;
}

bool read_ramp(Tables& tables, const Grid& grid, BatchSpec& spec) {
  if (!tables.has(kRamp)) return tables.find(kRamp) == nullptr;
  const auto values = tables.integers(kRamp);
  if (values.size() != 3) {
    tables.complain(kRamp, fmt::format("expected [start, increment, samples], found {} numbers", values.size()));
    return false;
  }
  spec.ramp = {values[0], values[1], values[2]};
  if (spec.ramp.start > spec.global_batch || (spec.global_batch - spec.ramp.start) % spec.ramp.increment != 0) {
    tables.complain(kRamp, fmt::format("from {} in steps of {} the batch never becomes global_batch_size {}",
                                       spec.ramp.start, spec.ramp.increment, spec.global_batch));
    return false;
  }
  if ((spec.global_batch - spec.ramp.start) / spec.ramp.increment > 1'000'000) {
    tables.complain(kRamp, "more than 1000000 increments; take a larger increment");
    return false;
  }
  for (std::int64_t batch = spec.ramp.start; batch <= spec.global_batch; batch += spec.ramp.increment) {
    const std::int64_t micro = micro_at(spec, batch);
    if (batch % (micro * grid.data) == 0) continue;
    tables.complain(
        kRamp, fmt::format("a batch of {} on the way is not a multiple of micro_batch_size {} × data {}; {}", batch,
                           micro, grid.data, derivation(grid)));
    return false;
  }
  return true;
}

}  // namespace

void fill_batch(Tables& tables, Recipe& recipe) {
  TrainSection& train = recipe.train;
  // Every part complains about itself; the length of the run needs all of them.
  const bool schedule = read_schedule(tables, train.batch);
  const bool sizes = schedule && read_sizes(tables, recipe.grid, train.batch);
  const bool ramp = sizes && read_ramp(tables, recipe.grid, train.batch);
  if (ramp && !train.batch.micro_batches.empty() && train.batch.micro_batches.back().global_batch > train.batch.global_batch) {
    tables.complain(kSchedule, fmt::format("its entry for a global batch of {} is never reached: global_batch_size is {}",
                                           train.batch.micro_batches.back().global_batch, train.batch.global_batch));
  }

  if (ramp && tables.has(kRamp) && train.batch.ramp.start == train.batch.global_batch) {
    recipe.warnings.push_back(fmt::format("train.rampup_batch_size has no effect: it starts at global_batch_size {}",
                                          train.batch.global_batch));
  }

  const bool has_samples = tables.has("train.train_samples"), has_iters = tables.has("train.train_iters");
  const bool wrote_samples = tables.find("train.train_samples") != nullptr,
             wrote_iters = tables.find("train.train_iters") != nullptr;
  if (wrote_samples && wrote_iters) {
    tables.complain("train.train_iters", "train_samples is given too; the length of a run is one of them");
  } else if (!wrote_samples && !wrote_iters) {
    tables.complain("train.train_samples", "missing; give the length of the run, as train_samples or train_iters");
  }
  if (!ramp) return;
  const BatchSchedule batches(train.batch, recipe.grid.data);
  train.train_samples = has_samples ? tables.integer("train.train_samples") : 0;
  if (!wrote_samples && has_iters) {
    const std::int64_t iters = tables.integer("train.train_iters");
    if (static_cast<double>(iters) * static_cast<double>(train.batch.global_batch) > 1e15) {
      tables.complain("train.train_iters", "more than 1e15 samples");
      return;
    }
    train.train_samples = batches.samples_after(iters);
  }
  train.train_steps = batches.steps_for(train.train_samples);
  if (has_samples && !wrote_iters && train.train_steps == 0) {
    tables.complain("train.train_samples", fmt::format("{} is less than the first batch of {} samples",
                                                       train.train_samples, batches.at(0).global_batch));
  }
  if (train.train_steps > 0) {
    const std::int64_t last = batches.phases(train.train_samples).back().batch.global_batch;
    if (last < train.batch.global_batch) {
      recipe.warnings.push_back(fmt::format("training ends at {} samples, inside the ramp of the batch: its last batch has {} samples, "
                                            "global_batch_size is {}",
                                            train.train_samples, last, train.batch.global_batch));
    }
  }
}

}  // namespace espalier::app
