#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/communicator.hpp"
#include "espalier/device.hpp"
#include "espalier/parallel/data.hpp"

namespace espalier::app {

/// Bytes of one rank's device: the most that was in use at any time, as the device itself counts it, beside what the
/// plan says.
struct RankMemory {
  static constexpr std::array<std::string_view, 5> kPurposes = {"weights", "gradients", "optimizer", "scratch",
                                                                "activations"};
  std::array<std::int64_t, 5> measured{};
  std::array<std::int64_t, 5> computed{};
  std::int64_t other = 0;  ///< measured under any other name: tables, the verdict's vector

  std::int64_t total() const;  ///< measured
};

RankMemory measure_memory(const Device& device, const StateBytes& state, std::size_t activations);

/// A line for ranks with the same numbers, "ranks 0-3: weights 1.2 MiB, …; in all 7.0 MiB, as computed", and one that
/// says which rank has the most. Where a number is not the computed one, both are there. Collective over the world; not
/// for steps.
std::vector<std::string> memory_lines(Communicator& world, const RankMemory& own, Stream& stream);

}  // namespace espalier::app
