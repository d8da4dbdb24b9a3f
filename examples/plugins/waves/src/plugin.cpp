// A pipeline schedule in one file: GPipe in waves. `wave` micro-batches go forward through all stages, then backward;
// then the next ones. At most `wave` activations are kept, at the price of a bubble a wave.
#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "espalier/plugin.hpp"

namespace {

using espalier::Do;
using espalier::Instruction;
using espalier::Mode;
using espalier::OptionType;

constexpr double kAny = std::numeric_limits<double>::infinity();

constinit const espalier::OptionSpec kOptions[] = {
    {"wave", OptionType::integer, "4", "micro-batches of a wave", 1, 1e6},
    {"backward", OptionType::string, "\"ascending\"",
     "order of backward in a wave; descending, as GPipe had it, adds gradients in another order and is refused", -kAny,
     kAny, "ascending|descending"},
};

class Waves final : public espalier::PipelineParallel {
 public:
  Waves(const espalier::ConfigView& config, espalier::HostContext& host)
      : stages_(host.facts().grid.pipeline),
        wave_(static_cast<int>(config.integer("wave"))),
        descending_(config.string("backward") == "descending") {}

  int stages() const override { return stages_; }
  int chunks() const override { return 1; }

  std::vector<int> cut(std::span<const double> layer_cost) const override {
    const auto layers = static_cast<int>(layer_cost.size());
    if (layers < stages_) {
      throw espalier::ConfigError("pipeline_waves: " + std::to_string(layers) + " layers cannot be cut into " +
                                  std::to_string(stages_) + " stages");
    }
    std::vector<int> first;
    for (int stage = 0; stage <= stages_; ++stage) first.push_back(stage * layers / stages_);
    return first;
  }

  espalier::Reason accepts(Mode, int micro_batches) const override {
    if (micro_batches >= 1) return {};
    return "a step needs at least 1 micro-batch, found " + std::to_string(micro_batches);
  }

  std::vector<Instruction> schedule(Mode mode, int stage, int micro_batches) const override {
    const bool first = stage == 0, last = stage == stages_ - 1;
    std::vector<Instruction> list;
    for (int begin = 0; begin < micro_batches; begin += wave_) {
      const int end = std::min(begin + wave_, micro_batches);
      for (int m = begin; m < end; ++m) {
        if (!first) list.push_back({Do::receive_activation, m, 0, stage - 1});
        list.push_back({Do::forward, m, 0, 0});
        if (!last) list.push_back({Do::send_activation, m, 0, stage + 1});
      }
      for (int i = begin; mode == Mode::train && i < end; ++i) {
        const int m = descending_ ? begin + end - 1 - i : i;
        if (!last) list.push_back({Do::receive_gradient, m, 0, stage + 1});
        list.push_back({Do::backward, m, 0, 0});
        if (!first) list.push_back({Do::send_gradient, m, 0, stage - 1});
      }
    }
    if (mode == Mode::forward_only) return list;
    list.push_back({Do::reduce_gradients, 0, 0, 0});
    if (stages_ > 1 && (first || last)) list.push_back({Do::reduce_tied_gradients, 0, 0, 0});
    list.push_back({Do::step, 0, 0, 0});
    return list;
  }

 private:
  int stages_, wave_;
  bool descending_;
};

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::PipelineParallel, Waves>("waves", kOptions, std::size(kOptions))};

}  // namespace

ESPALIER_PLUGIN("pipeline_waves", "0.1.0", "Apache-2.0", "GPipe in waves of micro-batches", kFactories);
