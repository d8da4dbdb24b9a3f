#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "espalier/dataset.hpp"
#include "espalier/tokenizer.hpp"
#include "session/session.hpp"

namespace espalier::app {

/// The loss of one set of held-out samples.
struct SetLoss {
  std::string name;
  double loss_sum = 0;      ///< natural logarithm, over all targets
  std::int64_t tokens = 0;  ///< targets
  std::int64_t bytes = 0;   ///< of the text the targets stand for
  double mean() const { return tokens > 0 ? loss_sum / static_cast<double>(tokens) : 0; }
  double bits_per_byte() const;
};

/// Sums of several sets, so that each byte counts once.
SetLoss total_of(std::span<const SetLoss> sets);

/// Evaluates held-out sets of a dataset: always the same samples in the same order, touching nothing that training uses.
class Evaluation {
 public:
  /// @param samples  of each set, 0 for all.
  Evaluation(Session& session, Dataset& dataset, std::int64_t samples);

  /// What the executor must be bound for.
  const Walk& walk() const { return walk_; }
  /// Positions in Dataset::sets() of what is evaluated.
  std::span<const int> sets() const { return sets_; }
  /// One set. Collective over the world.
  SetLoss run(int set);

 private:
  Session& session_;
  Dataset& dataset_;
  std::int64_t samples_;
  Walk walk_;
  std::vector<int> sets_;
  std::vector<std::int32_t> bytes_of_id_;
};

}  // namespace espalier::app
