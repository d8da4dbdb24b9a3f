#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "espalier/communicator.hpp"
#include "espalier/facts.hpp"
#include "espalier/optimizer.hpp"
#include "espalier/parallel/data.hpp"

namespace espalier::app {

/// One thing this rank holds that others may hold, too: the working weights of a parameter, or a piece of state.
struct Copy {
  int parameter = -1;  ///< position in the local list; -1: state of the whole model
  int layer = -1;      ///< of the working weights, to acquire before use; -1: a piece of state
  View data;           ///< of a piece of state; working weights are asked for anew each time
};

/// Several ranks' copies of one thing. The same list in the same order on every rank.
struct Replicated {
  std::string name;        ///< "h.0.input_layernorm.weight (moment1)", with its elements where it is a part
  std::vector<int> ranks;  ///< of the world, ascending, two at least
  std::vector<int> slots;  ///< [ranks]: place in that rank's list of copies
};

/// What ranks hold alike, found out from what each says it holds: two pieces are copies when logical parameter, slice
/// over the tensor group, state and range of elements agree. Groups and stages of a strategy play no part, so that any
/// strategy's state is understood: working weights over a data group, norms and row-parallel biases over a tensor
/// group, the tied embedding over first and last stage, moments where a strategy keeps them whole.
struct Replicas {
  std::vector<Copy> copies;            ///< this rank's, those that another rank holds as well
  std::vector<int> by_layer;           ///< all of them: state first, then the working weights layer by layer
  std::vector<Replicated> replicated;  ///< in logical order
  int most_copies = 0;                 ///< of any rank
};

/// Collective over the world. Not for steps.
/// @param parameters  this rank's, as the data strategy was bound with them.
Replicas find_replicas(Communicator& world, std::span<const LocalParameter> parameters, DataParallel& data,
                       const Optimizer& optimizer);

}  // namespace espalier::app
