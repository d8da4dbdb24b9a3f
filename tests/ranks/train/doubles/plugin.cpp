// The doubles of the strategies as a plugin, so that a recipe can name them.
#include <limits>

#include "espalier/plugin.hpp"
#include "support/doubles/gpipe_double.hpp"
#include "support/doubles/local_sgd.hpp"
#include "support/doubles/optimizers.hpp"
#include "support/doubles/tensor_double.hpp"

namespace {

using namespace espalier;
using namespace espalier::testing_support;

/// Gradient descent with momentum: linear in the gradient, so that the mean of two ranks' updates is the update of the
/// mean.
class Momentum final : public Optimizer {
 public:
  Precision precision() const override { return {}; }
  Unit unit(const Parameter&) const override { return Unit::element; }
  std::span<const StateSpec> state() const override { return kState; }
  void update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) override {
    kernels.lerp(block.state[0], block.gradient, 0.1, inputs.factor, inputs.skip, stream);
    kernels.axpy(-inputs.lr, block.state[0], block.master, block.working, nullptr, inputs.skip, stream);
  }
  void after(const Verdict&) override {}
  double loss_scale() const override { return 1; }
  std::vector<OptimizerScalar> scalars() override { return {}; }
  std::string description() const override { return "gradient descent with momentum"; }

 private:
  static constexpr StateSpec kState[] = {{"mean"}};
};

TensorParallel* make_tensor(const ConfigView&, HostContext& host) {
  return new TensorDouble(host.communicator(Group::tensor));
}
PipelineParallel* make_pipeline(const ConfigView&, HostContext& host) {
  return new GpipeDouble(host.facts().grid.pipeline);
}
DataParallel* make_data(const ConfigView& config, HostContext& host) {
  return new LocalSgd(host.communicator(Group::data), static_cast<int>(config.integer("interval")));
}
Optimizer* make_optimizer(const ConfigView& config, HostContext&) {
  if (config.boolean("matrices")) return new ToyMuon(config.string("working") == "bf16" ? DType::bf16 : DType::f32);
  return new Momentum;
}
template <class Interface>
void destroy(Interface* object) noexcept {
  delete object;
}

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr OptionSpec kData[] = {{"interval", OptionType::integer, "1", "steps between averages", 1, 1e6}};
constexpr OptionSpec kOptimizer[] = {
    {"matrices", OptionType::boolean, "true", "the one of whole matrices"},
    {"working", OptionType::string, "\"f32\"", "type of working weights of that one", -kAny, kAny, "f32|bf16"}};

constinit const Factory kFactories[] = {
    factory<TensorParallel, make_tensor, destroy<TensorParallel>>("split"),
    factory<PipelineParallel, make_pipeline, destroy<PipelineParallel>>("gpipe"),
    factory<DataParallel, make_data, destroy<DataParallel>>("local_sgd", kData, std::size(kData)),
    factory<Optimizer, make_optimizer, destroy<Optimizer>>("toy", kOptimizer, std::size(kOptimizer)),
};

}  // namespace

ESPALIER_PLUGIN("doubles", "0.1.0", "Apache-2.0", "second implementations of the strategies, for tests", kFactories);
