#include "orders.hpp"

namespace espalier::parallel_pipeline {

Orders gpipe_orders(Mode mode, int stages, int micro_batches) {
  std::vector<Instruction> list;
  list.reserve(static_cast<std::size_t>(micro_batches) * (mode == Mode::train ? 2 : 1));
  for (int m = 0; m < micro_batches; ++m) list.push_back({Do::forward, m, 0, 0});
  if (mode == Mode::train) {
    for (int m = 0; m < micro_batches; ++m) list.push_back({Do::backward, m, 0, 0});
  }
  return Orders(static_cast<std::size_t>(stages), list);
}

}  // namespace espalier::parallel_pipeline
