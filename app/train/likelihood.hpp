#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/communicator.hpp"
#include "espalier/facts.hpp"
#include "train/executor.hpp"

namespace espalier::app {

/// Tokens, of which those from `first_target` on are asked about.
struct LikelihoodRequest {
  std::vector<std::int32_t> tokens;
  std::size_t first_target = 1;  ///< 1 … tokens.size() − 1
};

/// Log-likelihoods of the ends of token rows, given their beginnings: Σ log p(token | all before it), through any
/// layout. Rows of like length share a pass; padding is masked and comes last, so it changes nothing.
class Likelihoods {
 public:
  /// Everything is kept by reference and must outlive the object.
  /// @param samples  rows of a micro-batch. @param micro_batches  of a pass: as many as fill the pipeline.
  Likelihoods(const RunFacts& facts, std::vector<LikelihoodRequest> requests, std::int64_t samples, int micro_batches);

  /// What the executor must be bound for.
  std::span<const Walk> walks() const { return walks_; }
  /// Natural logarithms, one a request, the same on all ranks. Collective over the world.
  /// @param advanced  called with the requests done since the last call.
  std::vector<double> run(Executor& executor, Backend& backend, Communicator& world,
                          const std::function<void(std::int64_t requests)>& advanced);

 private:
  const RunFacts& facts_;
  std::vector<LikelihoodRequest> requests_;
  std::vector<std::size_t> order_;  // by length, the longest first
  std::vector<Walk> walks_;         // with it
};

}  // namespace espalier::app
