// A small training job that a test runs with the real program, alone or under mpiexec, and what it left behind.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.hpp"

namespace espalier::testing_support {

using Json = nlohmann::json;

class TrainerJob {
 public:
  /// BLOOM of 2 layers and hidden 32 on synthetic text: optim_fp32, reference kernels, 40 steps of 8 samples in
  /// micro-batches of 2.
  /// @param name  of its folder, which is emptied.
  explicit TrainerJob(const std::string& name);
  /// A recipe that exists, with a run folder of the job's own; what is set wins over it.
  TrainerJob(const std::string& name, const std::filesystem::path& recipe);
  /// Removes the folder, unless the test has failed.
  ~TrainerJob();
  TrainerJob(TrainerJob&&) = default;
  TrainerJob& operator=(TrainerJob&&) = delete;

  /// @param key  "train.lr".
  /// @param value  as TOML has it: strings with their quotes.
  TrainerJob& set(const std::string& key, const std::string& value);
  /// More than one rank: data-parallel by parallel_zero of this stage.
  TrainerJob& ranks(int count, int zero_stage = 1);
  /// Ranks only; the recipe says how they are used.
  TrainerJob& world(int count);
  /// "NAME=value" for every rank.
  TrainerJob& environment(const std::string& text);
  /// A command that runs each rank's trainer, in rank order: {} is the usual one. For jobs whose ranks differ.
  TrainerJob& rank_commands(std::vector<std::vector<std::string>> commands);

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path recipe() const { return folder_ / "recipe.toml"; }
  std::filesystem::path run_dir() const { return folder_ / "run"; }
  std::filesystem::path checkpoint(int step) const {
    return run_dir() / "checkpoints" / ("step_" + std::to_string(step));
  }
  /// trainer train recipe.toml
  std::vector<std::string> trainer() const;
  std::vector<std::string> command() const;

  /// Writes the recipe and starts.
  std::unique_ptr<Process> start();
  Ended run(double limit = 60);
  /// run(), which must end well, within its time and with this code.
  /// @throws std::runtime_error with all output.
  Ended expect(int code, double limit = 60);
  /// Waits until metrics.jsonl has this step, or the job ended.
  bool wait_for_step(Process& process, int step) const;

  /// Records of metrics.jsonl of a kind: "step", "evaluation", or that of an event.
  std::vector<Json> records(const std::string& kind) const;
  std::vector<Json> steps() const { return records("step"); }
  std::string log() const;

 private:
  std::filesystem::path folder_;
  std::filesystem::path base_;
  std::map<std::string, std::map<std::string, std::string>> tables_;
  std::vector<std::string> environment_;
  std::vector<std::vector<std::string>> rank_commands_;
  int world_ = 1;
};

/// A number of a record; infinities and NaN, too.
double number(const Json& record, const std::string& key);

/// First difference between two runs in what must be equal to the bit (loss, norm, rate, scale, counters), or "". Each
/// step must be there once, in order, from `first` to `last`.
std::string difference_of_steps(const std::vector<Json>& a, const std::vector<Json>& b, int first, int last);

/// First difference between two checkpoints: train state, scalars, or a byte of a logical tensor; or "".
std::string difference_of_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b);

/// A logical tensor of a checkpoint in FP32.
std::vector<float> read_state(const std::filesystem::path& checkpoint, const std::string& parameter,
                              const std::string& state);

}  // namespace espalier::testing_support
