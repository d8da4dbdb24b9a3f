// Lion (Chen et al. 2023, arXiv:2302.06675): the sign of an interpolated momentum, decoupled weight decay.
//   c = β1 m + (1 − β1) g;  w −= lr (sign(c) + decay · w);  m = β2 m + (1 − β2) g
#include <iterator>
#include <string>

#include "espalier/plugin.hpp"

namespace {

using espalier::ConfigView;
using espalier::DType;
using espalier::OptionType;
using espalier::StateSpec;
using espalier::View;

constinit const espalier::OptionSpec kOptions[] = {
    {"beta1", OptionType::number, "0.9", "weight of the momentum in the update's direction", 0, 1},
    {"beta2", OptionType::number, "0.99", "weight of the old momentum in the new; at least beta1", 1e-6, 1},
    {"weight_decay", OptionType::number, "0.1", "decoupled, times the learning rate; matrices only", 0},
};

constinit const StateSpec kState[] = {{"master"}, {"moment1"}};

class Lion final : public espalier::Optimizer {
 public:
  Lion(const ConfigView& config, espalier::HostContext& /*host*/)
      : beta1_(config.number("beta1")), beta2_(config.number("beta2")), decay_(config.number("weight_decay")) {
    if (beta1_ > beta2_) config.fail("beta1", "expected at most beta2 = " + std::to_string(beta2_));
  }

  espalier::Precision precision() const override { return {DType::bf16, DType::f32, DType::f32, false}; }
  espalier::Unit unit(const espalier::Parameter& /*parameter*/) const override { return espalier::Unit::element; }
  std::span<const StateSpec> state() const override { return kState; }
  double loss_scale() const override { return 1; }
  void after(const espalier::Verdict& /*verdict*/) override {}
  std::vector<espalier::OptimizerScalar> scalars() override { return {}; }
  std::string description() const override {
    return "Lion, beta1 " + std::to_string(beta1_) + ", beta2 " + std::to_string(beta2_) + ", weight decay " +
           std::to_string(decay_);
  }

  void update(const espalier::UpdateBlock& block, const espalier::StepInputs& inputs, espalier::UpdateKernels& kernels,
              espalier::Stream& stream) override {
    const View& momentum = block.state[1];
    const View& direction = block.gradient;  // the gradient becomes the direction, so that Lion needs no buffer more
    const double decay = block.parameter->decays ? decay_ : 0;
    // With m' = β2 m + (1 − β2) g, the direction is c = g + (β1 / β2) (m' − g).
    kernels.lerp(momentum, block.gradient, 1 - beta2_, inputs.factor, inputs.skip, stream);
    kernels.scale(direction, 1, inputs.factor, inputs.skip, stream);
    kernels.lerp(direction, momentum, beta1_ / beta2_, nullptr, inputs.skip, stream);
    kernels.sign(direction, direction, inputs.skip, stream);
    kernels.scale(block.master, 1 - inputs.lr * decay, nullptr, inputs.skip, stream);
    kernels.axpy(-inputs.lr, direction, block.master, block.working, nullptr, inputs.skip, stream);
  }

 private:
  double beta1_, beta2_, decay_;
};

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::Optimizer, Lion>("lion", kOptions, std::size(kOptions))};

}  // namespace

ESPALIER_PLUGIN("optim_lion", "0.1.0", "Apache-2.0", "Lion with BF16 weights and FP32 master weights", kFactories);
