#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "espalier/dataset.hpp"
#include "espalier/facts.hpp"
#include "train/batch_schedule.hpp"

namespace espalier::app {

/// One rank's samples of one step, in the order they are trained on: micro-batch k holds rows [k · micro_batch, (k + 1) · micro_batch).
struct HostBatch {
  std::vector<std::int32_t> ids;      ///< [samples, seq], and one more
  std::vector<std::int32_t> targets;  ///< [samples, seq]; -1 where the loss does not count
  StepBatch shape;
  std::int64_t first_sample = 0;      ///< consumed samples when the step starts
};

/// Ordinal in the run of the first sample of a micro-batch of one data-parallel rank. The global order is cut into blocks of
/// micro_batch · data samples, one block a micro-batch; rank r takes the r-th part of each block (as Megatron's sampler does), so the
/// set of samples of a step does not depend on the number of ranks.
constexpr std::int64_t first_sample_of(std::int64_t step_start, const StepBatch& shape, const Grid& grid, std::int64_t micro_batch) {
  return step_start + (micro_batch * grid.data + grid.data_rank) * shape.micro_batch;
}

/// Reads one sample, checking every id against the tokenizer's vocabulary.
/// @param tokens  [seq + 1], the first `seq` of them are its ids. In a batch [samples, seq] that means one more than its row, which the
///                next row's first id replaces: so no sample is copied to take its last token off.
/// @param mask  [seq], overwritten.
/// @param targets  [seq], the tokens one further on; -1 where the loss does not count.
/// @throws IoError naming source and sample for an id outside the vocabulary.
void read_sample(const Dataset& dataset, int set, std::int64_t index, std::int64_t vocab, std::span<std::int32_t> tokens,
                 std::span<std::uint8_t> mask, std::span<std::int32_t> targets);

/// Reads training batches ahead on one thread. Never touches MPI. All buffers are made at the start.
class Loader {
 public:
  /// @param dataset  kept by reference. Set `set` of it is read from sample `consumed` to `train_samples`.
  Loader(const Dataset& dataset, int set, const BatchSchedule& schedule, const RunFacts& facts, std::int64_t train_samples,
         std::int64_t consumed);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next step's batch; valid until the next call. Blocks until it has been read.
  /// @throws what reading threw (IoError).
  const HostBatch& next();
  /// Seconds spent waiting in next() so far.
  double waited_seconds() const { return waited_; }
  /// Seconds of a core that reading has used so far, on the loader's own thread.
  double busy_seconds() const { return busy_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kDepth = 3;  ///< one in use, one ready, one being read
  void work();
  void fill(HostBatch& batch, std::int64_t consumed);

  const Dataset& dataset_;
  int set_;
  BatchSchedule schedule_;
  Grid grid_;
  std::int64_t seq_, vocab_, train_samples_, start_;
  std::vector<std::uint8_t> mask_;

  std::vector<HostBatch> ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t filled_ = 0, taken_ = 0;  ///< batches read, batches given out
  bool stop_ = false;
  std::exception_ptr error_;
  double waited_ = 0;
  std::atomic<double> busy_{0};
  std::thread thread_;  ///< last: it uses everything above
};

}  // namespace espalier::app
