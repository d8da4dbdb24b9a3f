#pragma once

#include <memory>

#include "espalier/communicator.hpp"
#include "espalier/facts.hpp"

namespace espalier::app {

/// Whether a plugin asked a silent world's group to communicate.
struct SilentWorldUse {
  bool asked = false;
};

/// The world of a job that was not started: one process stands at the place that `grid` gives it. What the session
/// itself agrees on goes through, as if no other rank had anything to say; its groups ("tensor", "data", "pipeline",
/// "world") have the grid's sizes and ranks, and refuse to communicate.
/// @param use  told when a group refuses; must outlive the world.
/// @throws (from the groups) CommError.
std::unique_ptr<Communicator> make_silent_world(const Grid& grid, SilentWorldUse& use);

}  // namespace espalier::app
