#include <gtest/gtest.h>

#include "espalier/testing/communicator_suite.hpp"
#include "support/doubles/faulty_communicator.hpp"
#include "telemetry/communicator_counters.hpp"

namespace espalier::app {
namespace {

using testing_support::Fault;
using testing_support::FaultyCommunicator;

using espalier::testing::CommunicatorMaker;
using espalier::testing::CommunicatorSuite;
using espalier::testing::HostStream;

const CommunicatorMaker kCounted{
    "counted",
    [] { return make_counting_communicator(make_self_communicator("alone"), std::make_shared<CommCounters>()); }};
}  // namespace
}  // namespace espalier::app

namespace espalier::testing {
INSTANTIATE_TEST_SUITE_P(Counted, CommunicatorSuite, ::testing::Values(app::kCounted));
INSTANTIATE_TEST_SUITE_P(Counted, CommunicatorTypes,
                         ::testing::Combine(::testing::Values(app::kCounted), ::testing::Values(DType::bf16)));
}  // namespace espalier::testing

namespace espalier::app {
namespace {

/// Claims to be one of four ranks; nothing is sent.
class FourRanks final : public CommunicatorWrapper {
 public:
  FourRanks() : CommunicatorWrapper(make_self_communicator("data")) {}
  int size() const override { return 4; }
  Request start(const Operation&, Stream&) override { return {7, 1}; }
};

TEST(CommCounters, CountCallsAndBytesByGroupAndVerb) {
  const auto counters = std::make_shared<CommCounters>();
  const auto group = make_counting_communicator(std::make_unique<FourRanks>(), counters);
  HostStream stream;
  float data[16] = {};
  const View all = View::vector(data, 16, DType::f32), piece = all.flat_range(0, 4);
  const auto run = [&](Operation op) { group->run(op, stream); };
  run({Verb::all_reduce, all, all, Reduce::sum_rank_order, 0, 0});
  run({Verb::all_reduce, all, all, Reduce::sum_rank_order, 0, 0});
  run({Verb::reduce_scatter, all, piece, Reduce::sum_rank_order, 0, 0});
  run({Verb::all_gather, piece, all, Reduce::sum_rank_order, 0, 0});
  run({Verb::broadcast, all, all, Reduce::sum_rank_order, 0, 0});
  run({Verb::broadcast, all, all, Reduce::sum_rank_order, 1, 0});
  run({Verb::send, piece, {}, Reduce::sum_rank_order, 1, 0});
  run({Verb::receive, {}, piece, Reduce::sum_rank_order, 1, 0});
  const auto& rows = counters->totals();
  ASSERT_EQ(rows.size(), 8u);
  const std::int64_t calls[] = {2, 1, 1, 2, 0, 1, 1, 0};
  const std::int64_t bytes[] = {2 * 2 * 64 * 3 / 4, 16 * 3, 16 * 3, 64, 0, 16, 0, 0};
  for (std::size_t v = 0; v < 8; ++v) {
    EXPECT_EQ(rows[v].group, "data");
    EXPECT_EQ(rows[v].verb, static_cast<Verb>(v));
    EXPECT_EQ(rows[v].calls, calls[v]) << name_of(rows[v].verb);
    EXPECT_EQ(rows[v].bytes, bytes[v]) << name_of(rows[v].verb);
  }
  EXPECT_GT(rows[0].wait_seconds, 0.0);
  const auto part = group->split(0, 0, "tensor");
  EXPECT_EQ(counters->totals().size(), 16u);
  part->run({}, stream);
  EXPECT_EQ(counters->totals()[8 + 7].calls, 1);
  counters->reset();
  EXPECT_EQ(counters->totals()[0].calls, 0);
}

TEST(FaultyCommunicator, FailsTheCallThatWasAskedFor) {
  const auto counters = std::make_shared<CommCounters>();
  FaultyCommunicator group(make_counting_communicator(make_self_communicator("data"), counters), {Fault::refuse, 3});
  HostStream stream;
  group.run({}, stream);
  group.run({}, stream);
  EXPECT_THROW(group.run({}, stream), CommError);
  group.run({}, stream);
  EXPECT_EQ(counters->totals()[7].calls, 3);
}

TEST(FaultyCommunicator, DamagesWhatWasSent) {
  FaultyCommunicator group(make_self_communicator("data"), {Fault::flip_bit, 1});
  HostStream stream;
  float data[2] = {1, 2};
  group.finish(group.start_all_reduce(View::vector(data, 2, DType::f32), Reduce::sum_rank_order, stream), stream);
  EXPECT_NE(data[0], 1.0f);
  EXPECT_EQ(data[1], 2.0f);
}

}  // namespace
}  // namespace espalier::app
