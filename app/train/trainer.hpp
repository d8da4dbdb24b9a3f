#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/store.hpp"
#include "checkpoint/writer.hpp"
#include "espalier/monitor.hpp"
#include "session/session.hpp"
#include "telemetry/comm_report.hpp"
#include "train/evaluation.hpp"
#include "train/loader.hpp"
#include "train/replica_guard.hpp"
#include "train/resume.hpp"
#include "train/stop.hpp"

namespace espalier::app {

/// A training run: start or resume, steps, evaluations, checkpoints, stop. Collective over the session's world.
class Trainer {
 public:
  /// Sizes and reserves all memory, then loads the newest checkpoint or initialises the weights.
  explicit Trainer(Session& session);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Also hears of every step and event, on this rank. Before run().
  void add_monitor(std::unique_ptr<Monitor> monitor) { monitors_.push_back(std::move(monitor)); }

  /// Trains to the end of the recipe, or to a stop rule.
  /// @returns ok, or interrupted when a signal or limit ended it with the state saved.
  /// @throws NumericsError by the NaN policy or the optimizer; the last checkpoint is what a resume starts from.
  ExitCode run();

 private:
  /// What ranks agree on at a step border; the largest of all ranks counts.
  struct Border {
    StopReason stop = StopReason::none;
    bool writing = false;  ///< some rank's checkpoint file is not on disk yet
  };

  void bind();
  void start_or_resume();
  /// @throws AgreedError unless all ranks found the same.
  void require_same_start(const std::string& found) const;
  void initialise_weights();
  void load(const std::filesystem::path& folder, const std::string& note);
  void start_from(const std::filesystem::path& folder);
  void warn_of_later_steps(const CheckpointStore& store) const;
  void open_monitors(bool resumed);
  void report_start();

  void make_guard();
  void check_replicas();
  void report_guard();

  void one_step();
  void count_verdict(const Verdict& verdict);
  void apply_policy(const Verdict& verdict) const;
  void report_decay();
  void report_memory();
  void report_communication();
  void report_loader();
  void record_step(const Verdict& verdict, std::int64_t samples, double lr, double seconds);
  Border agree_on_border();
  void evaluate(std::string_view when);
  void save();
  void poll_save(bool writing);
  void finish_save();
  /// After an error that all ranks share: the save in flight is still worth having.
  void rescue_save();
  Manifest manifest() const;
  DataOrder data_order(const Manifest& saved) const;

  Progress progress() const;
  bool finished() const { return state_.step >= recipe_.train.train_steps; }
  void event(std::string_view kind, std::string_view text);
  /// Tells each monitor. Once steps have begun, one that fails (a full disk) is dropped, and the run stops at the next step border with
  /// its state saved: what was learned is worth more than the line.
  void tell(FunctionRef<void(Monitor&)> what);
  /// @throws AgreedError on all ranks when a monitor failed.
  void require_records();

  Session& session_;
  const Recipe& recipe_;
  BatchSchedule batches_;
  RateSchedule rates_;
  std::unique_ptr<Evaluation> evaluation_;
  std::vector<Walk> walks_;  ///< of training and of evaluation

  TrainState state_;
  std::optional<std::int64_t> saved_step_;  ///< of the newest save started or loaded
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::unique_ptr<ReplicaGuard> guard_;             ///< null: nothing is compared
  std::vector<RunNumber> run_numbers_;              ///< for the guard
  std::vector<std::unique_ptr<Monitor>> monitors_;  ///< the recipe's are on rank 0 only
  std::optional<CommReport> comm_report_;           ///< since run()
  std::vector<Metric> metrics_;                     ///< of the step that is recorded
  StopRules stop_rules_;
  bool stepping_ = false;       ///< there is something to lose
  std::string record_failure_;  ///< of the first monitor that failed, on this rank
  std::chrono::steady_clock::time_point step_start_{};
  std::int64_t steps_here_ = 0;  ///< since this process started
  double seconds_here_ = 0;      ///< of those steps
};

}  // namespace espalier::app
