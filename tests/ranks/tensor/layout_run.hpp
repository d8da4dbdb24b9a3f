// A small model under a layout of tensor and data ranks, run by the executor with the plugins that users load. Batches
// and initial weights are functions of logical coordinates, so that runs of any two layouts can be compared.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "support/hashed_batches.hpp"
#include "support/session_rig.hpp"

namespace espalier::testing_support {

using namespace espalier::app;

/// Two layers whose heads and ffn divide by 2, 3, 4 and 6; a vocabulary that divides by nothing, with two rows no token
/// has.
ModelShape small_model();

struct Layout {
  int tensor = 1, data = 1;
  bool sequence_parallel = false;
  bool overlap = true;
  std::string reduction = "rank_order";
  int zero = 1;
  std::string optimizer = "optim_fp32";
  std::string provider = "reference";
  Recompute recompute = Recompute::none;
  std::int64_t micro = 2;   ///< samples of a micro-batch
  std::int64_t global = 8;  ///< samples of a step
  bool probe = false;       ///< keeps gradients, changes no weights
  double std = 0.06;        ///< of initial weights
};
std::ostream& operator<<(std::ostream& out, const Layout& layout);

class LayoutRun : public SessionRig {
 public:
  /// Collective over `world`, which has tensor · data ranks, tensor innermost.
  LayoutRun(Communicator& world, const ModelShape& model, const Layout& layout);

  Verdict step(std::int64_t number);
  Verdict step(BatchSource& batches, std::int64_t number);
  EvalResult evaluate(std::int64_t number);
  HashedBatches batches(std::int64_t number) const {
    return {facts().model, layout_.micro, layout_.global, layout_.data, facts().grid.data_rank, number};
  }
  Optimizer& optimizer() { return probe_.has_value() ? *probe_ : session().optimizer(); }

 private:
  Layout layout_;
  std::optional<GradientProbe> probe_;
};

/// The same model and batches on one rank, each rank for itself.
std::unique_ptr<LayoutRun> run_alone(const ModelShape& model, Layout layout);

/// Every element of every logical gradient is one rank's within `share` of the parameter's rms + 1e-8; key biases,
/// whose gradient is rounding noise, within 1e-8.
void expect_gradients(LayoutRun& run, LayoutRun& alone, double share);

}  // namespace espalier::testing_support
