#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier::data_indexed {

/// Whose rules decide splits, epochs and blends.
enum class Sampling : std::uint8_t {
  bigscience,     ///< the fork of Megatron-DeepSpeed that trained BLOOM
  megatron_core,  ///< Megatron-LM core of 2026
};

/// The recipe's words for them; empty for another word.
std::optional<Sampling> sampling_of_name(std::string_view name);
std::string_view sampling_name(Sampling sampling);

/// Sequences [begin, end) of a dataset.
struct SequenceRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
  bool operator==(const SequenceRange&) const = default;
};

/// The shares of train, validation and test in a split string such as "949,50,1" (or "949/50/1"), as written; missing
/// ones are 0.
/// @throws ConfigError unless it is one to three non-negative finite numbers with a positive sum.
std::array<double, 3> parse_split(std::string_view text);

/// Borders of the three splits of `sequences` sequences, by bigscience's rule: each share is rounded half to even, and
/// what the rounding gained or lost is taken off every border but the first. The first border may come out as -1.
std::array<std::int64_t, 4> split_borders(const std::array<double, 3>& shares, std::int64_t sequences);

/// The same by core's rule: the running sums of the shares over their sum, each rounded half to even. A split whose
/// share is 0 begins where it ends.
std::array<std::int64_t, 4> core_borders(const std::array<double, 3>& shares, std::int64_t sequences);

/// The borders for a split string, as ranges.
/// @throws ConfigError if a border comes out below 0, which bigscience's rule does when train has a share of 0.
std::array<SequenceRange, 3> split_ranges(std::string_view text, std::int64_t sequences,
                                          Sampling sampling = Sampling::bigscience);

/// A finite number, blanks around it allowed; empty for anything else.
std::optional<double> parse_share(std::string_view text);

/// A range "START:END" of shares, 0 <= START <= END <= 1.
struct ShareRange {
  double start = 0.0;
  double end = 1.0;
};

/// @throws ConfigError if it is not of that form.
ShareRange parse_range(std::string_view text);

/// The sequences of a range; borders are rounded half to even.
SequenceRange range_of(const ShareRange& range, std::int64_t sequences);

}  // namespace espalier::data_indexed
