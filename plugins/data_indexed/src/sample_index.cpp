#include "sample_index.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "fail.hpp"
#include "large_vector.hpp"

namespace espalier::data_indexed {
namespace {

// Share of an epoch below which the last epoch is kept apart, so that the epochs before it stay whole.
double separate_below(Sampling sampling) { return sampling == Sampling::bigscience ? 0.95 : 0.80; }

constexpr std::int64_t kUint32Samples = std::int64_t{0xffffffff} - 1;  // from here on bigscience writes int64

template <typename T>
std::vector<T> build_shuffle(const EpochPlan& plan, NumpyRandom& random) {
  auto index = large_vector<T>(static_cast<std::size_t>(plan.samples));
  std::iota(index.begin(), index.end(), T{0});
  const std::span<T> all(index);
  const auto first = static_cast<std::size_t>(plan.samples_before_last);
  random.shuffle(all.first(first));
  if (plan.separate_last_epoch) {
    random.shuffle(all.subspan(first));
  }
  return index;
}

template <typename T>
std::vector<T> build_rows(const EpochPlan& plan, std::span<const std::int32_t> order, const std::byte* sizes,
                          std::int64_t sequences, std::string_view name, std::int64_t first_position) {
  auto rows = large_vector<T>(2 * static_cast<std::size_t>(plan.samples + 1));
  rows[0] = static_cast<T>(first_position);
  rows[1] = 0;
  const auto size_of = [&](std::int32_t sequence) {
    std::int32_t size;
    std::memcpy(&size, sizes + std::int64_t{sequence} * 4, sizeof size);
    return size;
  };
  constexpr std::size_t kAhead = 32;  // sizes are read in shuffled order: ask for them before they are needed
  std::size_t position = 0;
  std::int64_t passed = 0;  // tokens of the sequences before `position`
  std::int64_t size = -1;   // of the sequence at `position`, -1: not read yet
  const std::int64_t behind = plan.rules.extra_token ? 0 : 1;
  const std::int64_t tokens = plan.epochs * plan.tokens_per_epoch;
  const std::int64_t extra = plan.rules.extra_token ? 1 : 0;
  for (std::int64_t row = 1; row <= plan.samples; ++row) {
    // The end row of a partial sample is that of the last token there is.
    const std::int64_t target = std::min(row * plan.seq_length, tokens - extra);
    for (;;) {
      if (size < 0) {
        if (position == order.size()) {
          fail_io(name, "the document index names sequences of only " + std::to_string(passed) + " tokens, but " +
                            std::to_string(plan.epochs) + " epochs of " + std::to_string(plan.tokens_per_epoch) +
                            " tokens were counted on");
        }
        if (position + kAhead < order.size()) {
          __builtin_prefetch(sizes + std::int64_t{order[position + kAhead]} * 4);
        }
        if (order[position] < 0 || order[position] >= sequences) {
          fail_io(name, "the document index names sequence " + std::to_string(order[position]) + ", but there are " +
                            std::to_string(sequences));
        }
        size = size_of(order[position]);
      }
      if (target < passed + size + behind) {
        break;
      }
      passed += size;
      ++position;
      size = -1;
    }
    rows[2 * static_cast<std::size_t>(row)] = static_cast<T>(first_position + static_cast<std::int64_t>(position));
    rows[2 * static_cast<std::size_t>(row) + 1] = static_cast<T>(target - passed);
  }
  return rows;
}

}  // namespace

EpochPlan plan_epochs(std::int64_t tokens_per_epoch, std::int64_t samples_wanted, std::int64_t seq_length,
                      const SampleRules& rules) {
  if (tokens_per_epoch < 1 || seq_length < 1 || samples_wanted < 0) {
    fail_config("data", "cannot make " + std::to_string(samples_wanted) + " samples of " + std::to_string(seq_length) +
                            " tokens from " + std::to_string(tokens_per_epoch) + " tokens");
  }
  std::int64_t needed = 0;
  if (__builtin_mul_overflow(samples_wanted, seq_length, &needed) ||
      needed > std::numeric_limits<std::int64_t>::max() - tokens_per_epoch - 1) {
    fail_config("data", std::to_string(samples_wanted) + " samples of " + std::to_string(seq_length) +
                            " tokens are more than 2^63 tokens");
  }
  const std::int64_t extra = rules.extra_token ? 1 : 0;
  needed += extra;
  EpochPlan plan{};
  plan.rules = rules;
  plan.tokens_per_epoch = tokens_per_epoch;
  plan.seq_length = seq_length;
  plan.samples_wanted = samples_wanted;
  plan.epochs = std::max<std::int64_t>((needed + tokens_per_epoch - 1) / tokens_per_epoch, 1);
  const std::int64_t usable = plan.epochs * tokens_per_epoch - extra;
  plan.samples = usable / seq_length + (rules.keep_partial && usable % seq_length > 0 ? 1 : 0);
  plan.samples_before_last = plan.samples;
  if (plan.epochs > 1) {
    const std::int64_t before_last = ((plan.epochs - 1) * tokens_per_epoch - extra) / seq_length;
    const std::int64_t per_epoch = (tokens_per_epoch - extra) / seq_length;
    const auto threshold = static_cast<std::int64_t>(separate_below(rules.sampling) * static_cast<double>(per_epoch));
    // The leftovers of earlier epochs can add up to one sample more than per_epoch: then the last epoch is whole, too.
    if (samples_wanted - before_last < threshold) {
      plan.separate_last_epoch = true;
      plan.samples_before_last = before_last;
    }
  }
  return plan;
}

std::vector<std::int32_t> build_document_index(const EpochPlan& plan, const SequenceRange& range, NumpyRandom& random) {
  if (range.end > std::numeric_limits<std::int32_t>::max()) {
    fail_config("data", "a dataset of " + std::to_string(range.end) +
                            " sequences is beyond the 32-bit document index; split it in parts and blend them");
  }
  const auto count = static_cast<std::size_t>(range.count());
  auto order = large_vector<std::int32_t>(count * static_cast<std::size_t>(plan.epochs));
  for (std::size_t at = 0; at < order.size(); at += count) {
    std::iota(order.begin() + static_cast<std::ptrdiff_t>(at), order.begin() + static_cast<std::ptrdiff_t>(at + count),
              static_cast<std::int32_t>(range.begin));
  }
  const std::span<std::int32_t> all(order);
  const std::size_t last = plan.separate_last_epoch ? count : 0;
  random.shuffle(all.first(order.size() - last));
  random.shuffle(all.last(last));
  return order;
}

ShuffleIndex build_shuffle_index(const EpochPlan& plan, NumpyRandom& random) {
  if (plan.samples >= kUint32Samples) {
    return build_shuffle<std::int64_t>(plan, random);
  }
  return build_shuffle<std::uint32_t>(plan, random);
}

int sample_index_bits(std::int64_t document_entries) {
  return document_entries <= std::numeric_limits<std::int32_t>::max() ? 32 : 64;
}

SampleIndex build_sample_index(const EpochPlan& plan, std::span<const std::int32_t> document_index,
                               const std::byte* sizes, std::int64_t sequences, std::string_view name, int bits,
                               std::int64_t first_position) {
  if (bits == 32) {
    return build_rows<std::int32_t>(plan, document_index, sizes, sequences, name, first_position);
  }
  return build_rows<std::int64_t>(plan, document_index, sizes, sequences, name, first_position);
}

}  // namespace espalier::data_indexed
