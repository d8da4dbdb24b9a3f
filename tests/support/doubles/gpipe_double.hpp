// A schedule that is not 1F1B: all forwards, then all backwards (GPipe, Huang et al. 2019, arXiv:1811.06965), in
// ascending order of micro-batches, as gradients must be added.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "espalier/error.hpp"
#include "espalier/parallel/pipeline.hpp"

namespace espalier::testing_support {

class GpipeDouble final : public PipelineParallel {
 public:
  explicit GpipeDouble(int stages) : stages_(stages) {}

  int stages() const override { return stages_; }
  int chunks() const override { return 1; }

  /// A stage ends where its share of the cost is reached, and leaves a layer for each of the stages after it.
  std::vector<int> cut(std::span<const double> layer_cost) const override {
    const int layers = static_cast<int>(layer_cost.size());
    if (layers < stages_) {
      throw ConfigError("pipeline: " + std::to_string(layers) + " layers cannot be cut into " +
                        std::to_string(stages_) + " stages");
    }
    const double all = std::accumulate(layer_cost.begin(), layer_cost.end(), 0.0);
    std::vector<int> first = {0};
    double done = 0;
    for (int layer = 0, stage = 1; stage < stages_; ++stage) {
      const double goal = all * stage / stages_;
      do {
        done += layer_cost[static_cast<std::size_t>(layer++)];
      } while (done + layer_cost[static_cast<std::size_t>(layer)] / 2 < goal && layer < layers - (stages_ - stage));
      first.push_back(layer);
    }
    first.push_back(layers);
    return first;
  }

  Reason accepts(Mode, int micro_batches) const override {
    if (micro_batches >= 1) return {};
    return "a step needs at least 1 micro-batch, found " + std::to_string(micro_batches);
  }

  std::vector<Instruction> schedule(Mode mode, int stage, int micro_batches) const override {
    std::vector<Instruction> list;
    const bool first = stage == 0, last = stage == stages_ - 1;
    for (int m = 0; m < micro_batches; ++m) {
      if (!first) list.push_back({Do::receive_activation, m, 0, stage - 1});
      list.push_back({Do::forward, m, 0, 0});
      if (!last) list.push_back({Do::send_activation, m, 0, stage + 1});
    }
    if (mode == Mode::forward_only) return list;
    for (int m = 0; m < micro_batches; ++m) {
      if (!last) list.push_back({Do::receive_gradient, m, 0, stage + 1});
      list.push_back({Do::backward, m, 0, 0});
      if (!first) list.push_back({Do::send_gradient, m, 0, stage - 1});
    }
    list.push_back({Do::reduce_gradients, 0, 0, 0});
    if (first || last) list.push_back({Do::reduce_tied_gradients, 0, 0, 0});
    list.push_back({Do::step, 0, 0, 0});
    return list;
  }

 private:
  int stages_;
};

}  // namespace espalier::testing_support
