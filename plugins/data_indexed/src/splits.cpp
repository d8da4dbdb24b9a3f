#include "splits.hpp"

#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "fail.hpp"

namespace espalier::data_indexed {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string_view> pieces(std::string_view text, char separator) {
  std::vector<std::string_view> result;
  for (;;) {
    const auto at = text.find(separator);
    result.push_back(text.substr(0, at));
    if (at == std::string_view::npos) {
      return result;
    }
    text.remove_prefix(at + 1);
  }
}

// The default rounding mode of the processor is half to even, as Python's round().
std::int64_t round_half_even(double value) { return static_cast<std::int64_t>(std::nearbyint(value)); }

}  // namespace

std::optional<double> parse_share(std::string_view text) {
  text = trimmed(text);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<Sampling> sampling_of_name(std::string_view name) {
  for (const Sampling sampling : {Sampling::bigscience, Sampling::megatron_core}) {
    if (name == sampling_name(sampling)) {
      return sampling;
    }
  }
  return std::nullopt;
}

std::string_view sampling_name(Sampling sampling) {
  return sampling == Sampling::bigscience ? "bigscience" : "megatron_core";
}

std::array<double, 3> parse_split(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    fail_config("split", "\"" + std::string(text) + "\" " + why +
                             "; give the shares of train, validation and test, as in \"949,50,1\"");
  };
  const char separator = text.find(',') != std::string_view::npos ? ',' : '/';
  const auto parts = pieces(text, separator);
  std::array<double, 3> shares{};
  if (parts.size() > shares.size()) {
    refuse("has " + std::to_string(parts.size()) + " shares, but there are three splits");
  }
  double sum = 0.0;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const auto value = parse_share(parts[k]);
    if (!value && text.find_first_not_of(' ') == std::string_view::npos) {
      refuse("is empty");
    }
    if (!value) {
      refuse("holds \"" + std::string(parts[k]) + "\", which is not a number");
    }
    if (*value < 0.0) {
      refuse("has a negative share");
    }
    shares[k] = *value;
    sum += *value;
  }
  if (!(sum > 0.0) || !std::isfinite(sum)) {
    refuse("has shares whose sum is not a positive number");
  }
  return shares;
}

std::array<std::int64_t, 4> split_borders(const std::array<double, 3>& shares, std::int64_t sequences) {
  const double sum = shares[0] + shares[1] + shares[2];
  std::array<std::int64_t, 4> borders{};
  for (std::size_t k = 0; k < 3; ++k) {
    borders[k + 1] = borders[k] + round_half_even(shares[k] / sum * static_cast<double>(sequences));
  }
  const std::int64_t excess = borders[3] - sequences;
  for (std::size_t k = 1; k < 4; ++k) {
    borders[k] -= excess;
  }
  return borders;
}

std::array<std::int64_t, 4> core_borders(const std::array<double, 3>& shares, std::int64_t sequences) {
  const double sum = shares[0] + shares[1] + shares[2];
  const auto n = static_cast<double>(sequences);
  std::array<std::int64_t, 4> borders{};
  double reached = 0.0;
  for (std::size_t k = 0; k < 3; ++k) {
    reached += shares[k] / sum;
    borders[k + 1] = round_half_even(reached * n);
  }
  return borders;
}

std::array<SequenceRange, 3> split_ranges(std::string_view text, std::int64_t sequences, Sampling sampling) {
  const auto borders = sampling == Sampling::bigscience ? split_borders(parse_split(text), sequences)
                                                        : core_borders(parse_split(text), sequences);
  for (std::size_t k = 1; k < 4; ++k) {
    if (borders[k] < borders[k - 1]) {
      fail_config("split", "\"" + std::string(text) + "\" on " + std::to_string(sequences) +
                               " sequences gives the borders " + std::to_string(borders[0]) + ", " +
                               std::to_string(borders[1]) + ", " + std::to_string(borders[2]) + ", " +
                               std::to_string(borders[3]) +
                               ", because both later shares are rounded up; give train a " + "share, or use ranges");
    }
  }
  return {SequenceRange{borders[0], borders[1]}, SequenceRange{borders[1], borders[2]},
          SequenceRange{borders[2], borders[3]}};
}

ShareRange parse_range(std::string_view text) {
  const auto parts = pieces(text, ':');
  if (parts.size() == 2) {
    const auto start = parse_share(parts[0]);
    const auto end = parse_share(parts[1]);
    if (start && end && 0.0 <= *start && *start <= *end && *end <= 1.0) {
      return {*start, *end};
    }
  }
  fail_config("range", "\"" + std::string(text) + "\" is not START:END with 0 <= START <= END <= 1, as in \"0:0.95\"");
}

SequenceRange range_of(const ShareRange& range, std::int64_t sequences) {
  const auto n = static_cast<double>(sequences);
  return {round_half_even(range.start * n), round_half_even(range.end * n)};
}

}  // namespace espalier::data_indexed
