// Stage 3: when layers are gathered, and that what is gathered are their weights.
#include <gtest/gtest.h>

#include "ranks/zero/zero_run.hpp"
#include "support/mpi_test.hpp"

namespace espalier {
namespace {

using namespace testing_support;

/// Notes how many gathers have been started when one is waited for.
class GatherLog final : public CommunicatorWrapper {
 public:
  GatherLog(std::unique_ptr<Communicator> inner, std::vector<int>& started_at_waits)
      : CommunicatorWrapper(std::move(inner)), log_(started_at_waits) {}
  Request start(const Operation& operation, Stream& after) override {
    started_ += operation.verb == Verb::all_gather ? 1 : 0;
    return CommunicatorWrapper::start(operation, after);
  }
  void finish(Request request, Stream& before) override {
    if (request) log_.push_back(started_);
    CommunicatorWrapper::finish(request, before);
  }

 private:
  std::vector<int>& log_;
  int started_ = 0;
};

class ZeroGathers : public testing::Test {
 protected:
  ZeroGathers() {
    plan_.parameters = locals_;
    plan_.precision = optimizer_.precision();
    plan_.end_layer = 4;
  }

  /// Stage 3 with these options; layers 3, 2, 1 are used, announced or not.
  std::vector<int> use_layers(std::map<std::string, ConfigValue::Data> options, bool announced) {
    std::vector<int> log;
    TestHost host(backend_, std::make_unique<GatherLog>(world_->split(0, world_->rank(), "data"), log));
    options["stage"] = std::int64_t{3};
    const TestConfig config(parallel_zero::kOptions, options);
    parallel_zero::Zero zero(config.view(), host);
    zero.bind(plan_, optimizer_, backend_);
    Stream& stream = backend_.device().lane(Lane::compute);
    fill_weights(zero, locals_, stream);
    const std::vector<LayerUse> uses = {{3, Need::all}, {2, Need::all}, {1, Need::all}, {1, Need::all}};
    zero.begin(announced ? std::span<const LayerUse>(uses) : std::span<const LayerUse>(), 0);
    for (const LayerUse& use : uses) {
      zero.acquire(use.layer, use.need, stream);
      for (std::size_t p = 0; p < locals_.size(); ++p) {
        const Parameter& parameter = locals_[p].parameter;
        if (parameter.layer != use.layer) continue;
        const View weight = zero.weight(static_cast<int>(p));
        for (std::int64_t i = 0; i < weight.elements(); ++i) {
          EXPECT_EQ(load(weight, i), to_float(to_bf16(toy_weight(parameter.index, i)))) << parameter.name;
        }
      }
      zero.release(use.layer, use.need);
    }
    return log;
  }

  const std::unique_ptr<Communicator> world_ = make_world_communicator();
  const std::vector<LocalParameter> locals_ = whole(toy_parameters());
  ToyAdamW optimizer_{DType::bf16, DType::bf16};
  PlainBackend backend_;
  StatePlan plan_;
};

// Layer 3 has vectors only; 2 and 1 have vectors and a matrix buffer each. The last use is of the layer before it.
TEST_F(ZeroGathers, AheadOfUseWhereAnnouncedAndOnceWhereKept) {
  if (world_->size() == 1) return;
  const std::int64_t none = 0, one = 1, many = 100;
  const auto at_waits = [&](std::int64_t prefetch, std::int64_t keep, bool announced) {
    return use_layers({{"prefetch", prefetch}, {"keep_gathered", keep}}, announced);
  };
  EXPECT_EQ(at_waits(none, none, true), (std::vector<int>{1, 3, 3, 5, 5, 7, 7}));
  EXPECT_EQ(at_waits(one, none, false), (std::vector<int>{1, 3, 3, 5, 5, 7, 7}));
  EXPECT_EQ(at_waits(one, none, true), (std::vector<int>{3, 5, 5, 5, 5, 7, 7}));
  EXPECT_EQ(at_waits(one, many, true), (std::vector<int>{3, 5, 5, 5, 5}));
}

}  // namespace
}  // namespace espalier
