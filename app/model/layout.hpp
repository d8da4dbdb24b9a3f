#pragma once

#include <cstdint>

#include "espalier/parallel/data.hpp"
#include "espalier/parallel/parameter.hpp"
#include "espalier/threads.hpp"

namespace espalier::app {

/// Elements that lie side by side both in a rank's local tensor and in the logical one.
struct Run {
  std::int64_t local = 0;  ///< flat index in the local tensor (placement.local, row-major)
  std::int64_t logical =
      0;  ///< flat index in the logical tensor (parameter.shape, row-major); -1: padding, which is never stored
  std::int64_t length = 0;
};

/// Cuts the flat range [begin, end) of a local tensor into runs, ascending, and calls `body` with each. Runs are as
/// long as possible: one for a tensor split by rows, one a row for one split by columns.
void for_each_run(const LocalParameter& local, std::int64_t begin, std::int64_t end,
                  FunctionRef<void(const Run&)> body);

/// The runs of a piece of state; run.local - piece.begin is the position in piece.data.
void for_each_run(const LocalParameter& local, const StatePiece& piece, FunctionRef<void(const Run&)> body);

}  // namespace espalier::app
