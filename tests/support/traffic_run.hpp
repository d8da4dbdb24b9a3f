// A counted step of a layout beside what the formulas say.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "support/session_rig.hpp"
#include "support/traffic.hpp"

namespace espalier::testing_support {

struct TrafficCase {
  int tensor = 1, pipeline = 1, data = 1;
  int micro_batches = 1;
  std::string schedule = "1f1b";
  bool sequence_parallel = false;
  bool scatter_gather = false;
  int zero = 1;
  bool reduce_per_step = false;
  app::Recompute recompute = app::Recompute::none;
  std::string optimizer = "optim_fp32";

  int ranks() const { return tensor * pipeline * data; }
};
std::ostream& operator<<(std::ostream& out, const TrafficCase& at);

/// One quantity of one rank.
struct TrafficLine {
  std::string what;
  std::int64_t counted = 0, formula = 0;
};

/// What the formulas need to know of a rig's rank.
TrafficFacts traffic_facts(SessionRig& rig, const TrafficCase& at);

/// Runs a step of a model whose shards need no padding. Collective over `world`, of exactly the case's ranks.
std::vector<TrafficLine> count_step(Communicator& world, const TrafficCase& at);

/// Layouts alone and together, 1, 2 and 5 micro-batches, with and without recomputation.
std::vector<TrafficCase> traffic_cases();

}  // namespace espalier::testing_support
