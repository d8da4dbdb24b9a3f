#pragma once

#include "orders.hpp"

namespace espalier::parallel_pipeline {

/// A stage's list: its work with messages, and for training the end of the step.
///
/// All orders are run on a clock (forward 1, each half of a backward 1). A message belongs to the moment its work is
/// done; on both sides it stands behind the work that is over by then. So every list has its messages in the order of
/// one clock: the stages can meet in each of them in that order, and a receive is posted before the work during which
/// the message comes.
/// @param chunks  of a stage; part c · stages + s of the model is chunk c of stage s.
std::vector<Instruction> weave(const Orders& orders, Mode mode, int stage, int chunks, int micro_batches);

}  // namespace espalier::parallel_pipeline
