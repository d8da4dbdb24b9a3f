#include <algorithm>

#include "orders.hpp"

namespace espalier::parallel_pipeline {

Orders zero_bubble_orders(Mode mode, int stages, int micro_batches) {
  if (mode == Mode::forward_only) return gpipe_orders(mode, stages, micro_batches);
  Orders orders;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Instruction>& list = orders.emplace_back();
    const int ahead = std::min(stages - stage - 1, micro_batches);
    for (int m = 0; m < ahead; ++m) list.push_back({Do::forward, m, 0, 0});
    for (int m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches) list.push_back({Do::forward, m + ahead, 0, 0});
      list.push_back({Do::backward_input, m, 0, 0});
      if (m >= stage) list.push_back({Do::backward_weight, m - stage, 0, 0});
    }
    for (int m = std::max(micro_batches - stage, 0); m < micro_batches; ++m) {
      list.push_back({Do::backward_weight, m, 0, 0});
    }
  }
  return orders;
}

}  // namespace espalier::parallel_pipeline
