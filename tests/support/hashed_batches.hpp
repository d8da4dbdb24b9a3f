// Batches that are a hash of sample and position, so that every layout is given the same ones.
#pragma once

#include <cstdint>
#include <vector>

#include "espalier/facts.hpp"
#include "train/batch.hpp"

namespace espalier::testing_support {

/// One data rank's part of a step of `global` samples, shared out as the trainer's loader does. Every seventh target,
/// about, does not count.
class HashedBatches final : public app::BatchSource {
 public:
  HashedBatches(const ModelShape& shape, std::int64_t micro, std::int64_t global, int data, int data_rank,
                std::int64_t step);
  app::MicroBatch micro_batch(int index) override;
  /// Masks every target of sample s but the first `counts`.
  void keep(std::int64_t sample, std::int64_t counts);

 private:
  std::int64_t place(std::int64_t sample) const;  ///< of its first token in this rank's tokens; -1: another rank's

  std::int64_t seq_, micro_, data_, data_rank_, first_;
  std::vector<std::int32_t> ids_, targets_;
};

}  // namespace espalier::testing_support
