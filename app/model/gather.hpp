#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/communicator.hpp"
#include "espalier/parallel/data.hpp"

namespace espalier::app {

/// The whole logical tensor of one kind of state of one parameter, row-major, on every rank, whatever the topology:
/// each rank puts in what it would write into a checkpoint. Collective over the world; meant for one parameter at a
/// time.
/// @param pieces  of this rank (DataParallel::state()).
/// @param parameters  the list that StatePiece::parameter counts in.
std::vector<float> gather_logical(const Parameter& parameter, std::string_view state,
                                  std::span<const StatePiece> pieces, std::span<const LocalParameter> parameters,
                                  Backend& backend, Communicator& world);

/// Sums a host vector over the world, in rank order, through device memory. Collective.
void sum_over_world(std::span<float> values, Backend& backend, Communicator& world);

}  // namespace espalier::app
