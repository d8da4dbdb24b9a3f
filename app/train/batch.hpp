#pragma once

#include <cstdint>

#include "espalier/parallel/schedule.hpp"

namespace espalier::app {

/// One micro-batch of this rank, in host memory that stays valid until the step or evaluation is over.
struct MicroBatch {
  const std::int32_t* ids = nullptr;  ///< [samples, seq]
  const std::int32_t* targets =
      nullptr;  ///< [samples · seq]; a negative one is masked: it counts neither in the loss nor in the mean
  std::int64_t first_sample =
      0;  ///< ordinal of the first sample in the run (what dropout draws from); the others follow it
};

/// Supplies the micro-batches of one step. A stage asks where it needs ids (the embedding) or targets (the head), each
/// at most once a step and in any order; all ranks that differ only in tensor or pipeline coordinate must be given the
/// same.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual MicroBatch micro_batch(int index) = 0;
};

/// One kind of pass over micro-batches: the shapes that arena and schedules are made for.
struct Walk {
  Mode mode = Mode::train;
  std::int64_t samples = 1;  ///< micro-batch size
  std::int64_t seq = 0;
  int micro_batches = 1;  ///< per data-parallel rank
  bool operator==(const Walk&) const = default;
};

}  // namespace espalier::app
