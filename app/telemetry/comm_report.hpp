#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "espalier/monitor.hpp"
#include "telemetry/communicator_counters.hpp"

namespace espalier::app {

/// What communication costs, as metrics of a step and as lines for the log.
class CommReport {
 public:
  /// @param counters  kept by reference; all groups have been wrapped.
  explicit CommReport(const CommCounters& counters);

  /// What this rank did since the last call, for every group and verb that has been used so far: "comm tensor
  /// all_reduce bytes", "… calls", "… wait (s)". Makes no heap call. Valid until the next call.
  std::span<const Metric> since_last();
  /// "tensor: 12.3 MB sent in 48 calls, 0.812 s waiting; most: 14.0 MB, 1.204 s (rank 3)" for each group: this rank's
  /// totals, then the largest of all ranks. Collective over the world; not for steps.
  std::vector<std::string> lines(Communicator& world, Stream& stream) const;

 private:
  const CommCounters& counters_;
  std::vector<std::array<std::string, 3>> names_;  // [rows]
  std::vector<CommTotal> last_;                    // [rows]
  std::vector<Metric> metrics_;
};

}  // namespace espalier::app
