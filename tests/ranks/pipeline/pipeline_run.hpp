// Steps of a small model on the first ranks of a test's world, assembled as the trainer does from the plugins
// themselves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/doubles/hooked_data.hpp"
#include "support/session_rig.hpp"

namespace espalier::testing_support {

struct RunOptions {
  int pipeline = 1;
  int data = 1;
  int tensor = 1;
  std::string schedule = "1f1b";
  int micro_batches = 4;
  bool tied = true;
  std::vector<std::string> more;  ///< further --set
};

/// Rows of bytes, a function of step and ordinal of the sample in it.
class SomeBatches final : public app::BatchSource {
 public:
  SomeBatches(const Grid& grid, const app::Walk& walk);
  void begin(std::int64_t step) { step_ = step; }
  app::MicroBatch micro_batch(int index) override;

 private:
  Grid grid_;
  app::Walk walk_;
  std::int64_t step_ = 0;
  std::vector<std::int32_t> ids_, targets_;
};

class PipelineRun {
 public:
  /// @param world  of exactly pipeline · data · tensor ranks.
  PipelineRun(Communicator& world, const RunOptions& options);

  Verdict step();
  double evaluate();
  /// FP32 truth of every parameter, on every rank.
  std::map<std::string, std::vector<float>> masters();
  /// Working weights of the tied embedding on this rank; empty where it is not held.
  std::vector<std::byte> tied_copy();
  int position_of(std::string_view name);  ///< in this rank's parameters, -1: not here

  app::Session& session() { return rig_.session(); }
  app::Executor& executor() { return rig_.executor(); }
  HookedData& data() { return *data_; }
  /// Bytes that this rank has sent to other stages since the start.
  std::int64_t sent_bytes();

 private:
  std::unique_ptr<HookedData> data_;
  SessionRig rig_;
  app::Walk train_, valid_;
  SomeBatches batches_;
  std::int64_t steps_ = 0;
};

struct RunResult {
  std::vector<double> losses;  ///< mean of each step
  std::vector<double> norms;
  double valid = 0;  ///< mean after the last step
  std::map<std::string, std::vector<float>> masters;
};

/// Runs on the first pipeline · data · tensor ranks of `world`; the others wait. The result is rank 0's, empty on the
/// ranks that wait.
RunResult run_steps(Communicator& world, const RunOptions& options, int steps);

}  // namespace espalier::testing_support
