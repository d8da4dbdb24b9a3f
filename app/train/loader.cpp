#include "train/loader.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "espalier/error.hpp"

namespace espalier::app {

void read_sample(const Dataset& dataset, int set, std::int64_t index, std::int64_t vocab, std::span<std::int32_t> tokens,
                 std::span<std::uint8_t> mask, std::span<std::int32_t> targets) {
  std::ranges::fill(mask, std::uint8_t{1});
  dataset.read(set, index, tokens, mask);
  // One comparison for both ends: a negative id is a huge unsigned one.
  const auto bad = std::ranges::find_if(
      tokens, [vocab](std::int32_t id) { return static_cast<std::uint32_t>(id) >= static_cast<std::uint64_t>(vocab); });
  if (bad != tokens.end()) {
    const SampleOrigin origin = dataset.origin(set, index);
    throw IoError(fmt::format("{}: sample {} has token id {} at position {}, but the tokenizer has ids 0 to {}; the data was made with "
                              "another tokenizer",
                              origin.source, origin.sample, *bad, bad - tokens.begin(), vocab - 1));
  }
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = mask[i] != 0 ? tokens[i + 1] : -1;
}

Loader::Loader(const Dataset& dataset, int set, const BatchSchedule& schedule, const RunFacts& facts, std::int64_t train_samples,
               std::int64_t consumed)
    : dataset_(dataset),
      set_(set),
      schedule_(schedule),
      grid_(facts.grid),
      seq_(facts.model.seq_length),
      vocab_(facts.model.tokenizer_vocab),
      train_samples_(train_samples),
      start_(consumed),
      mask_(static_cast<std::size_t>(seq_)),
      ring_(kDepth) {
  std::int64_t most = 0;
  for (const BatchPhase& phase : schedule.phases(train_samples)) {
    most = std::max(most, phase.batch.micro_batch * phase.batch.micro_batches);
  }
  for (HostBatch& batch : ring_) {
    batch.ids.resize(static_cast<std::size_t>(most * seq_ + 1));
    batch.targets.resize(static_cast<std::size_t>(most * seq_));
  }
  thread_ = std::thread([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const HostBatch& Loader::next() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return filled_ > taken_ || error_ != nullptr; });
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (filled_ == taken_) std::rethrow_exception(error_);
  const HostBatch& batch = ring_[static_cast<std::size_t>(taken_ % kDepth)];
  ++taken_;
  changed_.notify_all();
  return batch;
}

void Loader::work() {
  try {
    std::int64_t consumed = start_;
    for (;;) {
      const StepBatch shape = schedule_.at(consumed);
      if (consumed + shape.global_batch > train_samples_) return;
      HostBatch* batch = nullptr;
      {
        // The batch given out last stays in use until the next call of next(): one slot of the ring is not free.
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || filled_ - taken_ < kDepth - 1; });
        if (stop_) return;
        batch = &ring_[static_cast<std::size_t>(filled_ % kDepth)];
      }
      fill(*batch, consumed);
      timespec now{};
      ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      busy_.store(static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec), std::memory_order_relaxed);
      consumed += shape.global_batch;
      {
        const std::lock_guard lock(mutex_);
        ++filled_;
      }
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

void Loader::fill(HostBatch& batch, std::int64_t consumed) {
  batch.shape = schedule_.at(consumed);
  batch.first_sample = consumed;
  const auto seq = static_cast<std::size_t>(seq_);
  std::size_t row = 0;
  for (std::int64_t k = 0; k < batch.shape.micro_batches; ++k) {
    const std::int64_t first = first_sample_of(consumed, batch.shape, grid_, k);
    for (std::int64_t i = 0; i < batch.shape.micro_batch; ++i, ++row) {
      read_sample(dataset_, set_, first + i, vocab_, std::span(batch.ids).subspan(row * seq, seq + 1), mask_,
                  std::span(batch.targets).subspan(row * seq, seq));
    }
  }
}

}  // namespace espalier::app
