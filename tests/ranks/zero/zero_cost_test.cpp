// What a step costs: bytes on the wire, memory as planned, no heap call of ours.
#include <gtest/gtest.h>

#include "ranks/zero/zero_run.hpp"
#include "support/heap_calls.hpp"
#include "support/mpi_test.hpp"
#include "telemetry/communicator_counters.hpp"

namespace espalier {
namespace {

using namespace testing_support;

class ZeroCost : public testing::TestWithParam<int> {
 protected:
  ZeroCost() {
    plan_.parameters = locals_;
    plan_.precision = optimizer_.precision();
    plan_.end_layer = 4;
  }
  void step(parallel_zero::Zero& zero, int number) {
    Stream& stream = backend_.device().lane(Lane::compute);
    for (int m = 0; m < 2; ++m) write_gradients(zero, locals_, m, world_->rank(), number, stream);
    zero.reduce(Do::reduce_gradients, stream);
    zero.reduce(Do::reduce_tied_gradients, stream);
    zero.squares(slots_.data(), stream);
    zero.step(optimizer_, {1e-3, nullptr, nullptr, number + 1}, stream);
  }

  const std::unique_ptr<Communicator> world_ = make_world_communicator();
  const std::vector<LocalParameter> locals_ = whole(toy_parameters());
  const std::shared_ptr<app::CommCounters> counters_ = std::make_shared<app::CommCounters>();
  std::vector<double> slots_ = std::vector<double>(toy_parameters().size());
  ToyAdamW optimizer_{DType::bf16, DType::bf16};
  PlainBackend backend_;
  StatePlan plan_;
};

TEST_P(ZeroCost, BytesMemoryAndHeap) {
  const std::int64_t ranks = world_->size();
  TestHost host(backend_, app::make_counting_communicator(world_->split(0, world_->rank(), "data"), counters_));
  const TestConfig config(parallel_zero::kOptions,
                          {{"stage", std::int64_t{GetParam()}}, {"bucket_bytes", std::int64_t{4096}}});
  parallel_zero::Zero zero(config.view(), host);
  const StateBytes planned = zero.plan(plan_, optimizer_);
  zero.bind(plan_, optimizer_, backend_);

  std::map<std::string, std::size_t> use;
  for (const MemoryUse& entry : backend_.device().memory_use()) use[entry.purpose] = entry.bytes;
  EXPECT_EQ(use["weights"], planned.weights);
  EXPECT_EQ(use["gradients"], planned.gradients);
  EXPECT_EQ(use["optimizer"], planned.optimizer);
  EXPECT_EQ(use["scratch"], planned.scratch);
  const auto elements = static_cast<std::int64_t>(planned.gradients / 4);
  EXPECT_EQ(static_cast<std::int64_t>(planned.weights), 2 * elements);
  EXPECT_EQ(static_cast<std::int64_t>(planned.optimizer), 12 * elements / (GetParam() == 0 ? 1 : ranks));
  ASSERT_EQ(host.lines.size(), 1u);
  EXPECT_NE(host.lines[0].find("padding"), std::string::npos) << host.lines[0];

  std::int64_t before = heap_calls();
  make_self_communicator("calls the heap inside core");
  EXPECT_GT(heap_calls(), before) << "calls of core are not seen";

  for (int s = 0; s < 2; ++s) step(zero, s);
  counters_->reset();
  before = heap_calls();
  for (int s = 2; s < 6; ++s) step(zero, s);
  EXPECT_EQ(heap_calls(), before) << "heap calls in four steps";

  std::map<Verb, std::int64_t> bytes;
  for (const app::CommTotal& row : counters_->totals()) bytes[row.verb] += row.bytes;
  // BF16 both ways: 2 (ranks − 1)/ranks of the buffers to reduce everywhere, half of it to reduce to shards, half to
  // gather.
  const std::int64_t half = 4 * 2 * elements * (ranks - 1) / ranks;
  EXPECT_EQ(bytes[Verb::all_reduce], GetParam() == 0 ? 2 * half : 0);
  EXPECT_EQ(bytes[Verb::reduce_scatter], GetParam() == 0 ? 0 : half);
  EXPECT_EQ(bytes[Verb::all_gather], GetParam() == 0 ? 0 : half);
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroCost, testing::Values(0, 1));

}  // namespace
}  // namespace espalier
