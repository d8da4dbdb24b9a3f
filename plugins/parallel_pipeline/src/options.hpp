#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "espalier/config.hpp"

namespace espalier::parallel_pipeline {

inline constexpr double kAny = std::numeric_limits<double>::infinity();

inline constexpr OptionSpec kOptions[] = {
    {"schedule", OptionType::string, "\"1f1b\"", "order of work on a stage", -kAny, kAny,
     "gpipe|1f1b|interleaved|zero_bubble"},
    {"chunks", OptionType::integer, "", "virtual stages of a rank: 2 or more for interleaved (default 2), else 1", 1,
     1000},
    {"cut", OptionType::string, "\"layers\"",
     "of what parts get equal shares: blocks, parameters, slots (every block, the embedding and the head one each), or "
     "computation",
     -kAny, kAny, "layers|parameters|slots|cost"},
    {"parts", OptionType::integers, "",
     "instead of cut: layers of each part, embedding and head counted; [3, 2, 3] is embedding + 2, 2, 2 + head", 1,
     1e6},
    {"scatter_gather", OptionType::boolean, "false",
     "each rank of a tensor group sends 1/t of an activation, and the group of the next stage gathers it"},
};

enum class Schedule : std::uint8_t { gpipe, one_f_one_b, interleaved, zero_bubble };
enum class Cut : std::uint8_t { layers, parameters, slots, cost, list };

struct Options {
  Schedule schedule = Schedule::one_f_one_b;
  int chunks = 1;
  Cut cut = Cut::layers;
  std::vector<std::int64_t> parts;  ///< Cut::list: layers of each part
  bool scatter_gather = false;
};

/// @param stages  of the pipeline. One stage has one chunk whatever the schedule: there is nothing to interleave.
/// @throws ConfigError for options that do not fit together.
Options read_options(const ConfigView& config, int stages);

}  // namespace espalier::parallel_pipeline
