#include "espalier/error.hpp"
#include "espalier/parallel/pipeline.hpp"

namespace espalier {
namespace {

class SingleStage final : public PipelineParallel {
 public:
  int stages() const override { return 1; }
  int chunks() const override { return 1; }

  std::vector<int> cut(std::span<const double> layer_cost) const override {
    if (layer_cost.empty()) throw ConfigError("pipeline: a model without layers cannot be cut into 1 stage");
    return {0, static_cast<int>(layer_cost.size())};
  }

  Reason accepts(Mode, int micro_batches) const override {
    if (micro_batches >= 1) return {};
    return "a step needs at least 1 micro-batch, found " + std::to_string(micro_batches);
  }

  std::vector<Instruction> schedule(Mode mode, int stage, int micro_batches) const override {
    ESPALIER_ASSERT(stage == 0 && micro_batches >= 1);
    std::vector<Instruction> list;
    for (int m = 0; m < micro_batches; ++m) {
      list.push_back({Do::forward, m, 0, 0});
      if (mode == Mode::train) list.push_back({Do::backward, m, 0, 0});
    }
    if (mode == Mode::train) {
      list.push_back({Do::reduce_gradients, 0, 0, 0});
      list.push_back({Do::step, 0, 0, 0});
    }
    return list;
  }
};

}  // namespace

std::unique_ptr<PipelineParallel> make_single_stage() { return std::make_unique<SingleStage>(); }

}  // namespace espalier
