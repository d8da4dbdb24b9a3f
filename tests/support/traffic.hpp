// Bytes that a rank sends in a step, by the formulas of 2104.04473, 2205.05198 and 1910.02054 and what this trainer
// sends besides; for layouts whose shards need no padding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/choices.hpp"
#include "model/model.hpp"
#include "telemetry/communicator_counters.hpp"

namespace espalier::testing_support {

/// What decides the traffic of one rank. T tokens of a micro-batch, h hidden, t tensor, d data ranks, m micro-batches.
struct TrafficFacts {
  ModelShape model;
  Grid grid;
  std::int64_t micro = 1;
  std::int64_t micro_batches = 1;  ///< m
  std::vector<app::LayerRange> parts;
  app::Recompute recompute = app::Recompute::none;
  bool sequence_parallel = false;
  bool scatter_gather = false;
  int zero = 1;
  bool reduce_per_step = false;    ///< stage 2 with reduce = "step"
  std::int64_t working_bytes = 4;  ///< of a weight or an activation
  std::int64_t reduced_bytes = 4;  ///< of a gradient on the wire, g
};

/// One row a formula. Each is exact in integers where shards and vocabulary divide.
struct Traffic {
  std::int64_t tensor_blocks = 0;  ///< n · L · m · 2(t−1)/t · T h elements: n = 4 sums a block
  std::int64_t tensor_recompute =
      0;  ///< full: the forward's sums once more, but for the last, whose result is not needed
  std::int64_t tensor_regather = 0;    ///< sequence parallelism: weight gradients gather their two inputs again
  std::int64_t tensor_vocabulary = 0;  ///< embedding, the head's input gradient, three numbers a token for the loss
  std::int64_t tensor_partial = 0;     ///< norms and row-parallel biases under sequence parallelism, once a step
  std::int64_t tensor_messages = 0;    ///< scatter_gather: what came in parts is gathered
  std::int64_t pipeline = 0;           ///< 2 v m messages of T h elements, one way only at the ends of the model
  std::int64_t tied = 0;               ///< 4 V h/t each way, a d-th from stage 1 on
  std::int64_t data_gradients = 0;
  std::int64_t data_weights = 0;
  std::int64_t verdict = 0;  ///< 8 · (parameters + 2) as an all-reduce over the world

  std::int64_t tensor_total() const {
    return tensor_blocks + tensor_recompute + tensor_regather + tensor_vocabulary + tensor_partial + tensor_messages;
  }
};

/// Elements of the parameters on this rank: Nr.
std::int64_t rank_parameters(const TrafficFacts& facts);
Traffic expected_traffic(const TrafficFacts& facts);

/// Bytes that a rank has sent in a group since the last reset, all verbs or one.
std::int64_t counted_bytes(const app::CommCounters& counters, std::string_view group);
std::int64_t counted_bytes(const app::CommCounters& counters, std::string_view group, Verb verb);

}  // namespace espalier::testing_support
