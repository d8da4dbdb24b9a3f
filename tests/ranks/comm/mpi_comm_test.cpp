#include <chrono>
#include <cstdlib>
#include <thread>

#include "espalier/testing/communicator_suite.hpp"
#include "espalier/threads.hpp"
#include "support/mpi_test.hpp"
#include "telemetry/communicator_counters.hpp"

namespace espalier::testing {
namespace {

std::unique_ptr<Communicator> make_with_piece_limit(const char* elements) {
  setenv("ESPALIER_COMM_PIECE_ELEMENTS", elements, 1);
  auto group = make_world_communicator();
  unsetenv("ESPALIER_COMM_PIECE_ELEMENTS");
  return group;
}

const CommunicatorMaker kMpi{"mpi", [] { return make_world_communicator(); }};
// Messages and rounds of 1,000 elements, as a library with a small counter would force them.
const CommunicatorMaker kPieces{"pieces", [] { return make_with_piece_limit("1000"); }};
const CommunicatorMaker kTinyPieces{"tiny_pieces", [] { return make_with_piece_limit("701"); }};
const CommunicatorMaker kSplit{"split", [] {
                                 const auto world = make_world_communicator();
                                 return world->split(0, world->rank(), "all");
                               }};
const CommunicatorMaker kCounted{
    "counted",
    [] { return app::make_counting_communicator(make_world_communicator(), std::make_shared<app::CommCounters>()); }};

INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorSuite, ::testing::Values(kMpi, kPieces, kSplit, kCounted));
INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorTypes,
                         ::testing::Combine(::testing::Values(kMpi, kPieces),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64,
                                                              DType::i32, DType::i64, DType::u8)));
INSTANTIATE_TEST_SUITE_P(MpiOddPieces, CommunicatorTypes,
                         ::testing::Combine(::testing::Values(kTinyPieces), ::testing::Values(DType::f32)));

TEST(MpiCommunicator, RefusesMoreThanItsPoolOfRequests) {
  const auto world = make_world_communicator();
  if (world->size() == 1) return;  // nothing stays open in a group of one
  HostStream stream;
  const int next = (world->rank() + 1) % world->size(), before = (world->rank() + world->size() - 1) % world->size();
  std::vector<float> in(256), out(256);
  std::vector<Request> open;
  for (int i = 0; i < 128; ++i) {
    const auto at = static_cast<std::size_t>(i);
    out[at] = static_cast<float>(i);
    open.push_back(world->start_receive(View::vector(&in[at], 1, DType::f32), before, i, stream));
    open.push_back(world->start_send(View::vector(&out[at], 1, DType::f32), next, i, stream));
  }
  EXPECT_THROW(world->start_send(View::vector(out.data(), 1, DType::f32), next, 999, stream), CommError);
  for (Request request : open) world->finish(request, stream);
  EXPECT_EQ(std::vector<float>(in.begin(), in.begin() + 128), std::vector<float>(out.begin(), out.begin() + 128));
  EXPECT_THROW(world->finish(open[0], stream), CommError);
  world->run({}, stream);
}

// A wait for one group moves the operations of all others: a rank that waits here must not starve one that waits there.
TEST(MpiCommunicator, WaitingMovesEveryGroup) {
  const auto world = make_world_communicator();
  const auto other = world->split(0, world->rank(), "other");
  HostStream stream;
  std::vector<float> a(200000, 1.0f), b(200000, 2.0f);
  const View view_a = View::vector(a.data(), 200000, DType::f32), view_b = View::vector(b.data(), 200000, DType::f32);
  const Request first = world->start_all_reduce(view_a, Reduce::sum_rank_order, stream);
  const Request second = other->start_all_reduce(view_b, Reduce::sum_rank_order, stream);
  // Even ranks wait for the first operation first, odd ranks for the second.
  if (world->rank() % 2 == 0) world->finish(first, stream);
  other->finish(second, stream);
  if (world->rank() % 2 == 1) world->finish(first, stream);
  EXPECT_EQ(a[199999], static_cast<float>(world->size()));
  EXPECT_EQ(b[0], 2.0f * static_cast<float>(world->size()));
}

// Kernels move the operations that are under way: one question afterwards finds the sum done.
TEST(MpiCommunicator, KernelsMoveWhatIsUnderWay) {
  const auto world = make_world_communicator();
  if (world->size() == 1) return;  // nothing is under way in a group of one
  const auto pool = make_thread_pool(1);
  HostStream stream;
  std::vector<float> values(200000, 1.0f);
  world->run({}, stream);
  const Request sum =
      world->start_all_reduce(View::vector(values.data(), 200000, DType::f32), Reduce::sum_rank_order, stream);
  pool->run(400, [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  EXPECT_EQ(values[199999], static_cast<float>(world->size()));  // nobody has asked yet
  world->finish(sum, stream);
}

}  // namespace
}  // namespace espalier::testing
