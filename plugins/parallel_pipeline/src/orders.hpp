#pragma once

#include <vector>

#include "espalier/parallel/schedule.hpp"

namespace espalier::parallel_pipeline {

/// The work of every stage in its order: forwards and backwards, without messages.
using Orders = std::vector<std::vector<Instruction>>;

/// All forwards, then all backwards, both ascending (Huang et al. 2019, arXiv:1811.06965).
Orders gpipe_orders(Mode mode, int stages, int micro_batches);

/// Stage s runs stages − s − 1 forwards ahead, then one forward, one backward (PipeDream-Flush; Narayanan et al. 2021,
/// arXiv:2104.04473, section 2.2.1).
Orders one_f_one_b_orders(Mode mode, int stages, int micro_batches);

/// 1F1B over chunks in groups of `stages` micro-batches (arXiv:2104.04473, section 2.2.2). Where the count is no
/// multiple of the stages, the last group is filled up and what was filled in is left out: that takes away work but
/// adds no dependence.
Orders interleaved_orders(Mode mode, int stages, int chunks, int micro_batches);

/// ZB-H1 (Qi et al. 2024, arXiv:2401.10241, section 2.2): 1F1B with backward in halves; stage s puts off its weight
/// halves by s micro-batches, so that input halves get through sooner and the end is filled: at most `stages`
/// micro-batches alive on each.
Orders zero_bubble_orders(Mode mode, int stages, int micro_batches);

}  // namespace espalier::parallel_pipeline
