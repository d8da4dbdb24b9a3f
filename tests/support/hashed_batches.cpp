#include "support/hashed_batches.hpp"

#include "espalier/random.hpp"

namespace espalier::testing_support {
namespace {

std::uint32_t hash(std::int64_t sample, std::int64_t position) {
  return philox({77, 78}, {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(position), 0, 0})[0];
}

}  // namespace

HashedBatches::HashedBatches(const ModelShape& shape, std::int64_t micro, std::int64_t global, int data, int data_rank,
                             std::int64_t step)
    : seq_(shape.seq_length), micro_(micro), data_(data), data_rank_(data_rank), first_(step * global) {
  const std::int64_t ids = shape.tokenizer_vocab > 0 ? shape.tokenizer_vocab : shape.vocab;
  ids_.resize(static_cast<std::size_t>(global / data * seq_));
  targets_.resize(ids_.size());
  for (std::int64_t sample = first_; sample < first_ + global; ++sample) {
    const std::int64_t at = place(sample);
    if (at < 0) continue;
    const auto token = [&](std::int64_t p) { return static_cast<std::int32_t>(hash(sample, p) % ids); };
    for (std::int64_t p = 0; p < seq_; ++p) {
      ids_[static_cast<std::size_t>(at + p)] = token(p);
      targets_[static_cast<std::size_t>(at + p)] = hash(sample, p + 1000) % 7 == 0 ? -1 : token(p + 1);
    }
  }
}

std::int64_t HashedBatches::place(std::int64_t sample) const {
  const std::int64_t block = (sample - first_) / micro_;
  if (block % data_ != data_rank_) return -1;
  return (block / data_ * micro_ + (sample - first_) % micro_) * seq_;
}

app::MicroBatch HashedBatches::micro_batch(int index) {
  const auto at = static_cast<std::size_t>(index * micro_ * seq_);
  return {ids_.data() + at, targets_.data() + at, first_ + (index * data_ + data_rank_) * micro_};
}

void HashedBatches::keep(std::int64_t sample, std::int64_t counts) {
  const std::int64_t at = place(sample);
  if (at < 0) return;
  for (std::int64_t p = 0; p < seq_; ++p) {
    auto& target = targets_[static_cast<std::size_t>(at + p)];
    target = p < counts ? ids_[static_cast<std::size_t>(at + p)] : -1;
  }
}

}  // namespace espalier::testing_support
