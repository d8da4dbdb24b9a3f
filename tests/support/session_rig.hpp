// A run of any layout inside a test or a benchmark: assembled by the trainer's own Session from a recipe, with every
// communicator counted and any part of the executor replaceable.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/open.hpp"
#include "session/session.hpp"
#include "telemetry/communicator_counters.hpp"
#include "train/probe.hpp"

namespace espalier::testing_support {

struct RigOptions {
  int tensor = 1, pipeline = 1;      ///< data is what remains of the world
  std::int64_t micro = 1;            ///< samples of a micro-batch
  std::int64_t micro_batches = 1;    ///< per data rank and step
  std::vector<std::string> set;      ///< further keys over tests/support/rig.toml, as --set takes them
  std::int64_t tokenizer_vocab = 0;  ///< 0: model.vocab_size
  app::Session::Needs needs{false, false};
  /// Replaces parts of what the executor is made of; what it puts in must outlive the rig.
  std::function<void(app::ExecutorSetup&)> change;
};

/// A shape as keys of a recipe; tokenizer_vocab has none.
std::vector<std::string> keys_of(const ModelShape& model);

class SessionRig {
 public:
  /// Makes the parts; no model memory yet. Collective over `world`, whose ranks are all used: tensor innermost,
  /// pipeline outermost.
  SessionRig(Communicator& world, const RigOptions& options);

  /// Schedules, memory, and initial weights from a seed.
  /// @param std  of the weights; 0 makes them zero.
  void bind(std::span<const app::Walk> walks, Optimizer& optimizer, double std);
  /// The same without weights.
  void bind(std::span<const app::Walk> walks, Optimizer& optimizer);

  /// Walks of the recipe's batch.
  app::Walk train_walk() const;
  app::Walk eval_walk() const;

  /// Every logical tensor of a state, whole, on every rank.
  std::map<std::string, std::vector<float>> gather(std::string_view state);

  app::Session& session() { return *session_; }
  const RunFacts& facts() const { return session_->facts(); }
  const app::ParameterList& parameters() const { return session_->parameters(); }
  app::Executor& executor() { return *executor_; }
  DataParallel& data() { return *setup_.data; }
  Backend& backend() { return session_->backend(); }
  TensorParallel& tensor() { return *setup_.tensor; }
  Communicator& world() { return *setup_.world; }
  Communicator& tensor_group() { return *setup_.tensor_group; }
  Communicator& pipeline_group() { return *setup_.pipeline_group; }
  Stream& stream() { return session_->stream(); }
  app::CommCounters& counters() { return *counters_; }

 private:
  RigOptions options_;
  std::shared_ptr<app::CommCounters> counters_ = std::make_shared<app::CommCounters>();
  std::unique_ptr<Communicator> counted_;
  app::OpenRecipe opened_;
  std::unique_ptr<app::Session> session_;
  app::ExecutorSetup setup_;
  std::unique_ptr<app::Executor> own_executor_;  // where a part was replaced
  app::Executor* executor_ = nullptr;
};

/// Runs jobs of any number of ranks, as many at a time as the world holds; whoever has no job sleeps.
/// @param ranks  of each job; at most the world's.
/// @param body  called with a group of exactly that size and the job's number; what it throws says which job it was.
void run_packed(Communicator& world, std::span<const int> ranks,
                const std::function<void(Communicator& group, std::size_t job)>& body);

/// Waits until all ranks of `world` are here, asleep: for ranks without work, which leave the cores to the others.
void wait_asleep(Communicator& world);

}  // namespace espalier::testing_support
