#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "espalier/communicator.hpp"

namespace espalier::app {

/// What one verb of one group has cost this rank since the last reset.
struct CommTotal {
  std::string group;
  Verb verb = Verb::barrier;
  std::int64_t calls = 0;
  /// Sent by this rank if no byte travels twice, s = size: all_reduce 2 (s − 1)/s of the buffer; reduce_scatter,
  /// all_gather and all_to_all s − 1 pieces; broadcast all of it, by the root; send all of it.
  std::int64_t bytes = 0;
  double wait_seconds = 0;  ///< in finish()
};

/// Totals of all counting communicators that share it. Training thread only.
class CommCounters {
 public:
  /// Every verb of every group that was wrapped so far, also those never called; groups of one name are one row.
  const std::vector<CommTotal>& totals() const { return totals_; }
  void reset();
  /// First of the rows of a group, one for each verb; makes them at the first call.
  std::size_t rows_of(std::string_view group);
  CommTotal& row(std::size_t index) { return totals_[index]; }

 private:
  std::vector<CommTotal> totals_;
};

/// Counts what goes through `inner` and through everything split from it.
std::unique_ptr<Communicator> make_counting_communicator(std::unique_ptr<Communicator> inner,
                                                         std::shared_ptr<CommCounters> counters);

}  // namespace espalier::app
