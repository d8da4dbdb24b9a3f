#pragma once

#include <limits>

#include "espalier/communicator.hpp"
#include "espalier/config.hpp"

namespace espalier::parallel_tensor {

inline constexpr OptionSpec kOptions[] = {
    {"sequence_parallel", OptionType::boolean, "false",
     "outside sharded regions each rank keeps 1/size of the tokens: all-reduces become reduce-scatter and all-gather"},
    {"overlap", OptionType::boolean, "true", "the backward reduction runs while weight gradients are computed"},
    {"reduction", OptionType::string, "\"rank_order\"",
     "order of sums: the ranks', the same bits on every rank and in every run; or the communication library's own",
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), "rank_order|library"},
    {"reduce_dtype", OptionType::string, "\"auto\"",
     "type of the parts of a sum in messages: auto is the working type; f32 costs twice the bytes and rounds as one "
     "rank does",
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), "auto|f32"},
};

struct Options {
  bool sequence_parallel = false;
  bool overlap = true;
  Reduce sum = Reduce::sum_rank_order;
  bool reduce_f32 = false;
};

Options read_options(const ConfigView& config);

}  // namespace espalier::parallel_tensor
