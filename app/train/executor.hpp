#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/communicator.hpp"
#include "espalier/facts.hpp"
#include "espalier/optimizer.hpp"
#include "espalier/parallel/data.hpp"
#include "espalier/parallel/pipeline.hpp"
#include "espalier/parallel/tensor.hpp"
#include "model/model.hpp"
#include "model/parameters.hpp"
#include "train/batch.hpp"
#include "train/step_settings.hpp"

namespace espalier::app {

/// Everything is kept by pointer and must outlive the executor.
struct ExecutorSetup {
  const RunFacts* facts =
      nullptr;  ///< model, grid, seed, precision; model.seq_length is not used: each Walk has its own
  const ParameterList* parameters = nullptr;
  Backend* backend = nullptr;
  TensorParallel* tensor = nullptr;
  PipelineParallel* pipeline = nullptr;
  DataParallel* data = nullptr;
  Communicator* world =
      nullptr;  ///< sums the verdict; wrapped for the device where the backend has its own collectives
  Communicator* pipeline_group = nullptr;  ///< sends and receives; a rank in it is a stage
  Communicator* tensor_group = nullptr;    ///< gathers what a pipeline scatters, agrees on products; null: neither
  Recompute recompute = Recompute::none;
};

struct EvalResult {
  double loss_sum = 0;  ///< over all target tokens of all ranks; divide by tokens for the mean
  std::int64_t tokens = 0;
};

/// What bind() will reserve.
struct MemoryNeeds {
  StateBytes state;
  std::size_t arena = 0;
};

/// Runs instruction lists of any schedule over the model: forward, backward and its halves, messages between stages,
/// reductions, and the step with its one verdict (docs/architecture.md section 8).
///
/// Life: construct → (state_bytes, arena_bytes: no memory yet) → bind → initialise or load the master pieces →
/// train_step, evaluate. After bind, a step makes no heap call here. All calls but the first three are collective over
/// the world.
class Executor {
 public:
  /// Cuts the layers and places this rank's parameters.
  /// @throws ConfigError when the strategies refuse the model; PluginError when a plugin's cut is none.
  explicit Executor(const ExecutorSetup& setup);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// This rank's parameters: StatePiece::parameter counts in this list. Stays valid as long as the executor.
  std::span<const LocalParameter> parameters() const;
  /// The parts of the model on this rank, one a chunk.
  std::span<const LayerRange> parts() const;
  bool has_embedding() const;
  bool has_head() const;

  /// What the data strategy will reserve for these walks.
  StateBytes state_bytes(std::span<const Walk> walks, const Optimizer& optimizer) const;
  /// Activations and messages: the maximum over dry walks of the instruction lists.
  std::size_t arena_bytes(std::span<const Walk> walks) const;

  /// Both at once.
  MemoryNeeds memory_needs(std::span<const Walk> walks, const Optimizer& optimizer) const;

  /// Makes all schedules, sizes and reserves the arena, binds the data strategy. Each later step and evaluation must be
  /// one of these.
  /// @param walks  every (micro-batch size, sequence length, count) of training and evaluation that the run will reach.
  /// @throws ConfigError when the schedule does not accept a count; PluginError when its lists are unsound
  /// (check_schedule);
  ///         DeviceError when memory is short.
  void bind(std::span<const Walk> walks, const Optimizer& optimizer);

  /// One training step: all micro-batches, reductions, verdict, update; then optimizer.after(verdict). Waits for the
  /// device once.
  /// @param walk  one of those given to bind.
  /// @throws NumericsError from optimizer.after.
  Verdict train_step(const Walk& walk, BatchSource& batches, const StepSettings& settings, Optimizer& optimizer);

  /// Forward only; every rank gets the world's sums. Needs data.replicas_equal() or a sync() before.
  EvalResult evaluate(const Walk& walk, BatchSource& batches);

  /// Who sees this rank's logits, chunk by chunk, as the head computes them; null: nobody. For `numerics`.
  void watch_logits(LogitsSink* sink);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::app
