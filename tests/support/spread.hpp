// The loss of one model on fixed held-out tokens by layout and by kernel provider, in BF16: before the first step and
// after some. BLOOM's own run gave 1.944 to 2.043 for one checkpoint, by layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/communicator.hpp"

namespace espalier::testing_support {

struct SpreadLayout {
  int tensor = 1, pipeline = 1, data = 1;
  int zero = 1;
  std::string schedule = "1f1b";
  bool sequence_parallel = false;
  std::string provider = "kernels_fused";
  std::string optimizer = "optim_bf16";
  std::string reduce_dtype = "f32";  ///< of the parts of a tensor group's sums; "auto": BF16, each part rounded

  int ranks() const { return tensor * pipeline * data; }
  bool rounds_parts() const { return tensor > 1 && reduce_dtype == "auto"; }
  std::string name() const;
};

struct SpreadModel {
  int layers = 4, hidden = 64, heads = 4, seq = 64;
  int seed = 1234;
  int micro = 4;  ///< samples; four micro-batches a step
  int steps = 50;
  std::int64_t held_out_tokens = 65536;
};

struct HeldOutLoss {
  std::string name;
  double before = 0, after = 0;  ///< mean over the tokens
};

/// Largest less smallest.
struct Spread {
  double before = 0, after = 0;
};
Spread spread_of(const std::vector<HeldOutLoss>& losses);

/// Layouts of up to 8 ranks, one rank first; the last ones round the parts of their tensor group's sums.
std::vector<SpreadLayout> spread_layouts();

struct SpreadResult {
  std::vector<HeldOutLoss> layouts;
  std::vector<HeldOutLoss> other_provider;  ///< layouts with the reference kernels; none without steps
  HeldOutLoss fp32;                         ///< one rank
  /// Of the layouts that round no part of a sum; of one rank and those that do; of the two providers on that one layout
  /// of the first on which they are furthest apart; of one rank in BF16 and in FP32.
  Spread layouts_apart, rounded_parts, providers, precisions;
};

/// Trains and evaluates every layout; the result is every rank's. Collective over `world`, which has 8 ranks.
SpreadResult measure_spread(Communicator& world, const std::vector<SpreadLayout>& layouts, const SpreadModel& model);

}  // namespace espalier::testing_support
