// Parts that do not fit the others: an optimizer that no strategy can serve, a pipeline that talks while it is made.
#include <iterator>
#include <limits>

#include "espalier/error.hpp"
#include "espalier/parallel/pipeline.hpp"
#include "espalier/plugin.hpp"

namespace {

using namespace espalier;

constexpr double kAny = std::numeric_limits<double>::infinity();
constinit const OptionSpec kOptions[] = {
    {"lacks", OptionType::string, "\"master\"", "what strategies need and do not get", -kAny, kAny,
     "master|sums|elements"},
};
constinit const StateSpec kMaster[] = {{"master"}};

class OddOptimizer final : public Optimizer {
 public:
  OddOptimizer(const ConfigView& config, HostContext&) : lacks_(config.string("lacks")) {}

  Precision precision() const override {
    const DType sums = lacks_ == "sums" ? DType::bf16 : DType::f32;
    return {DType::bf16, DType::f32, sums, false};
  }
  Unit unit(const Parameter& parameter) const override {
    return lacks_ == "elements" && parameter.shape.rank() == 2 ? Unit::tensor : Unit::element;
  }
  std::span<const StateSpec> state() const override {
    return lacks_ == "master" ? std::span<const StateSpec>() : std::span<const StateSpec>(kMaster);
  }
  void update(const UpdateBlock&, const StepInputs&, UpdateKernels&, Stream&) override {}
  double loss_scale() const override { return 1; }
  void after(const Verdict&) override {}
  std::vector<OptimizerScalar> scalars() override { return {}; }
  std::string description() const override { return "odd"; }

 private:
  std::string lacks_;
};

PipelineParallel* talk_first(const ConfigView&, HostContext& host) {
  class : public Stream {
  } stream;
  host.communicator(Group::pipeline).run({Verb::barrier, {}, {}, Reduce::sum_rank_order, 0, 0}, stream);
  return make_single_stage().release();
}
void destroy(PipelineParallel* pipeline) noexcept { delete pipeline; }

constinit const Factory kFactories[] = {
    factory_of<Optimizer, OddOptimizer>("odd", kOptions, std::size(kOptions)),
    factory<PipelineParallel, talk_first, destroy>("talks_first"),
};

}  // namespace

ESPALIER_PLUGIN("odd", "0.1.0", "Apache-2.0", "for tests: parts that do not fit the others", kFactories);
