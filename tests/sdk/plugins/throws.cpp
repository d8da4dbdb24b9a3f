// An optimizer whose factory throws: on every rank, or on one rank of the data group only.
#include <iterator>
#include <stdexcept>
#include <string>

#include "espalier/plugin.hpp"

namespace {

using namespace espalier;

class Idle final : public Optimizer {
 public:
  Precision precision() const override { return {}; }
  Unit unit(const Parameter& /*parameter*/) const override { return Unit::element; }
  std::span<const StateSpec> state() const override { return {}; }
  void update(const UpdateBlock& /*block*/, const StepInputs& /*inputs*/, UpdateKernels& /*kernels*/,
              Stream& /*stream*/) override {}
  void after(const Verdict& /*verdict*/) override {}
  double loss_scale() const override { return 1; }
  std::vector<OptimizerScalar> scalars() override { return {}; }
  std::string description() const override { return "idle"; }
};

Optimizer* create(const ConfigView& config, HostContext& host) {
  const std::int64_t rank = config.integer("rank");
  if (rank >= 0 && rank != host.facts().grid.data_rank) return new Idle;
  if (config.boolean("plain")) throw 42;
  throw std::runtime_error("cannot work like this");
}
void destroy(Optimizer* optimizer) noexcept { delete optimizer; }

constinit const OptionSpec kOptions[] = {
    {"rank", OptionType::integer, "-1", "which rank throws; -1: all", -1},
    {"plain", OptionType::boolean, "false", "throw something that is no std::exception"},
};
constinit const Factory kFactories[] = {factory<Optimizer, create, destroy>("throws", kOptions, std::size(kOptions))};

}  // namespace

ESPALIER_PLUGIN("sdk_throws", "1.0.0", "Apache-2.0", "Throws when it is made", kFactories);
