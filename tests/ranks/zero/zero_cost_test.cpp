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
  const int stage = GetParam();
  TestHost host(backend_, app::make_counting_communicator(world_->split(0, world_->rank(), "data"), counters_));
  const TestConfig config(
      parallel_zero::kOptions,
      {{"stage", std::int64_t{stage}}, {"bucket_bytes", std::int64_t{4096}}, {"keep_gathered", std::int64_t{stage < 3}}});
  parallel_zero::Zero zero(config.view(), host);
  const StateBytes planned = zero.plan(plan_, optimizer_);
  zero.bind(plan_, optimizer_, backend_);

  std::map<std::string, std::size_t> use, parts;
  for (const MemoryUse& entry : backend_.device().memory_use()) use[entry.purpose] = entry.bytes;
  for (const MemoryUse& entry : planned.parts) parts[entry.purpose] = entry.bytes;
  EXPECT_EQ(use["weights"], planned.weights);
  EXPECT_EQ(use["gradients"], planned.gradients);
  EXPECT_EQ(use["optimizer"], planned.optimizer);
  EXPECT_EQ(use["scratch"], planned.scratch);
  EXPECT_EQ(planned.scratch, parts["messages"] + parts["gradients of one layer"] + parts["gathered layers"] +
                                 parts["gradient of one matrix"]);
  EXPECT_EQ(parts["gradients of one layer"] > 0, stage >= 2 && ranks > 1);
  EXPECT_EQ(parts["gathered layers"] > 0, stage == 3 && ranks > 1);

  // 2 + 4 + 12 bytes for each parameter, each divided by the ranks from its stage on, and padding that is named.
  std::int64_t parameters = 0;
  for (const LocalParameter& local : locals_) parameters += local.placement.local.elements();
  const auto everywhere = [&](std::size_t bytes, const char* padding) {
    double sum = static_cast<double>(bytes - parts[padding]);
    Stream& stream = backend_.device().lane(Lane::compute);
    world_->finish(world_->start_all_reduce(View::vector(&sum, 1, DType::f64), Reduce::sum_rank_order, stream), stream);
    return static_cast<std::int64_t>(sum);
  };
  EXPECT_EQ(everywhere(planned.weights, "padding of weights"), 2 * parameters * (stage < 3 ? ranks : 1));
  EXPECT_EQ(everywhere(planned.gradients, "padding of gradients"), 4 * parameters * (stage < 2 ? ranks : 1));
  EXPECT_EQ(everywhere(planned.optimizer, "padding of optimizer state"), 12 * parameters * (stage < 1 ? ranks : 1));
  const std::int64_t elements = parallel_zero::make_layout(plan_, optimizer_, world_->size()).elements;
  EXPECT_EQ(static_cast<std::int64_t>(planned.weights), 2 * elements / (stage < 3 ? 1 : ranks));
  EXPECT_EQ(static_cast<std::int64_t>(planned.gradients), 4 * elements / (stage < 2 ? 1 : ranks));
  EXPECT_EQ(static_cast<std::int64_t>(planned.optimizer), 12 * elements / (stage < 1 ? 1 : ranks));
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
  // BF16 both ways. In a step: 2 (ranks − 1)/ranks of the buffers to reduce everywhere, half of it to reduce to shards,
  // half to gather. Stages 2 and 3 reduce two micro-batches a step; stage 3 gathers for each of them (the toy model
  // uses each layer once).
  const std::int64_t half = 4 * 2 * elements * (ranks - 1) / ranks;
  EXPECT_EQ(bytes[Verb::all_reduce], stage == 0 ? 2 * half : 0);
  EXPECT_EQ(bytes[Verb::reduce_scatter], half * (stage == 0 ? 0 : stage == 1 ? 1 : 2));
  EXPECT_EQ(bytes[Verb::all_gather], half * (stage == 0 ? 0 : stage == 3 ? 2 : 1));
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroCost, testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace espalier
