// The communicator of the GPU backend over the fake NCCL: it does what every communicator must, and adds as MPI's does.
#include "nccl_communicator.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "controls.hpp"
#include "device.hpp"
#include "espalier/polling.hpp"
#include "espalier/testing/communicator_suite.hpp"
#include "host_operands.hpp"
#include "support/mpi_test.hpp"

namespace espalier::testing {
namespace {

using kernels_fused::cuda::CudaDevice;
using kernels_fused::cuda::NcclCommunicator;
using testing_support::HostOperands;

std::unique_ptr<Communicator> make(bool always) {
  auto device = std::make_shared<CudaDevice>(testing_support::world_rank());
  auto inner = std::make_unique<NcclCommunicator>(*device, make_world_communicator(), always);
  return std::make_unique<HostOperands>(std::move(device), std::move(inner));
}
std::unique_ptr<Communicator> make_nccl() { return make(false); }
/// Groups of one, too.
std::unique_ptr<Communicator> make_always() { return make(true); }

const CommunicatorMaker kNccl{"nccl", make_nccl, false};
const CommunicatorMaker kAlways{"always", make_always, false};

INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorSuite, ::testing::Values(kNccl, kAlways));
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorTypes,
                         ::testing::Combine(::testing::Values(kNccl, kAlways),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64,
                                                              DType::u8)));

/// Where the library sums, sums are near those in rank order.
TEST(Nccl, LibrarySums) {
  const auto group = make_nccl();
  HostStream stream;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    constexpr std::int64_t kElements = 1003;
    Numbers values(kElements * group->size(), dtype), piece(kElements, dtype);
    for (std::int64_t i = 0; i < values.view().elements(); ++i) values.set(i, suite_number(dtype, group->rank(), i));
    const auto sum = [&](std::int64_t i) {
      return sum_in_rank_order(dtype, group->size(), [&](int r) {
        Numbers one(1, dtype);
        one.set(0, suite_number(dtype, r, i));
        return one.get(0);
      });
    };
    group->run({Verb::reduce_scatter, values.view(), piece.view(), Reduce::sum_library, 0, 0}, stream);
    group->run({Verb::all_reduce, values.view(), values.view(), Reduce::sum_library, 0, 0}, stream);
    const double tolerance = dtype == DType::bf16 ? 0.02 : 1e-6;
    for (std::int64_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(values.get(i), sum(i), tolerance) << i;
      ASSERT_NEAR(piece.get(i), sum(group->rank() * kElements + i), tolerance) << i;
    }
  }
}

TEST(Nccl, HostMemoryIsRefused) {
  CudaDevice device(testing_support::world_rank());
  NcclCommunicator group(device, make_world_communicator());
  float value = 1;
  try {
    group.start_all_reduce(View::vector(&value, 1, DType::f32), Reduce::sum_rank_order, device.lane(Lane::compute));
    FAIL() << "host memory was accepted";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("host memory"), std::string::npos) << error.what();
  }
}

/// With `always` a group of one makes a communicator, and what it is asked for is work of NCCL.
TEST(Nccl, AGroupOfOneGoesThroughNcclWhereAsked) {
  if (testing_support::world_size() != 1) return;
  for (const bool always : {false, true}) {
    CudaDevice device(0);
    NcclCommunicator group(device, make_world_communicator(), always);
    const DeviceMemory memory = device.reserve(4096, "test");
    Stream& stream = device.lane(Lane::compute);
    const View one = View::vector(memory.data(), 8, DType::f32),
               two = View::vector(memory.data() + 1024, 8, DType::f32);
    const std::array<Operation, 5> all = {Operation{Verb::all_reduce, one, two, Reduce::sum_rank_order, 0, 0},
                                          Operation{Verb::reduce_scatter, one, two, Reduce::max, 0, 0},
                                          Operation{Verb::all_gather, one, two, Reduce::sum_rank_order, 0, 0},
                                          Operation{Verb::all_to_all, one, two, Reduce::sum_rank_order, 0, 0},
                                          Operation{Verb::barrier, {}, {}, Reduce::sum_rank_order, 0, 0}};
    const std::uint64_t before = fake::nccl_launches();
    for (const Operation& operation : all) group.run(operation, stream);
    device.wait(stream);
    EXPECT_EQ(fake::nccl_launches() - before, always ? all.size() : 0) << always;
    const auto part = group.split(0, 0, "part");
    part->run(all[0], stream);
    device.wait(stream);
    EXPECT_EQ(fake::nccl_launches() - before, always ? all.size() + 1 : 0) << always;
  }
}

TEST(Nccl, TwoRanksOnOneGpuAreTold) {
  if (testing_support::world_size() == 1) return;
  CudaDevice device(0);
  try {
    NcclCommunicator group(device, make_world_communicator());
    FAIL() << "two ranks share a GPU";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("ranks 0 and 1 both use GPU"), std::string::npos) << error.what();
  }
}

/// Ranks that do not fit together learn it, where NCCL would hang or mix up memory.
TEST(Nccl, TheFakeFindsCallsThatDoNotMeet) {
  if (testing_support::world_size() != 2) return;
  const int rank = testing_support::world_rank();
  const auto run = [rank](const auto& body) {
    auto device = std::make_shared<CudaDevice>(rank);
    auto group = std::make_unique<NcclCommunicator>(*device, make_world_communicator());
    auto other = group->split(0, rank, "other");
    const DeviceMemory memory = device->reserve(4096, "test");
    try {
      body(*group, *other, memory.data(), device->lane(Lane::compute));
      device->wait(device->lane(Lane::compute));
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  const auto fails = [&run](const auto& body) {
    const bool failed = run(body);
    fake::forget_error();
    return failed;
  };
  // Other counts.
  EXPECT_TRUE(fails([&](Communicator& group, Communicator&, std::byte* data, Stream& stream) {
    group.run({Verb::broadcast, View::vector(data, 4 + rank, DType::f32), View::vector(data, 4 + rank, DType::f32)},
              stream);
  }));
  // Other types of as many bytes.
  EXPECT_TRUE(fails([&](Communicator& group, Communicator&, std::byte* data, Stream& stream) {
    const View view = View::vector(data, 8, rank == 0 ? DType::f32 : DType::i32);
    group.run({Verb::broadcast, view, view}, stream);
  }));
  // Two groups in another order.
  EXPECT_TRUE(fails([&](Communicator& group, Communicator& other, std::byte* data, Stream& stream) {
    for (Communicator* one : {&group, &other}) {  // connected: else the hosts wait for each other, as those of NCCL
      one->run({Verb::broadcast, View::vector(data, 8, DType::f32), View::vector(data, 8, DType::f32)}, stream);
    }
    std::array<Request, 2> requests;
    for (const int which : {rank, 1 - rank}) {
      const View view = View::vector(data + 1024 * which, 8, DType::f32);
      requests[static_cast<std::size_t>(which)] = (which == 0 ? group : other).start_broadcast(view, 0, stream);
    }
    group.finish(requests[0], stream);
    other.finish(requests[1], stream);
  }));
  // And what does fit.
  EXPECT_FALSE(fails([&](Communicator& group, Communicator& other, std::byte* data, Stream& stream) {
    for (Communicator* one : {&group, &other}) {
      one->run({Verb::broadcast, View::vector(data, 8, DType::f32), View::vector(data, 8, DType::f32)}, stream);
    }
  }));
}

/// A device would send in its own time, but NCCL's host waits until it knows the other side.
TEST(Nccl, AFirstMessageWaitsForTheOtherHost) {
  if (testing_support::world_size() != 2) return;
  setenv("ESPALIER_FAKE_NCCL_PATIENCE", "1", 1);
  const int rank = testing_support::world_rank();
  const auto world = make_world_communicator();
  auto device = std::make_shared<CudaDevice>(rank);
  {
    NcclCommunicator group(*device, world->split(0, rank, "pair"));
    const DeviceMemory memory = device->reserve(64, "test");
    if (rank == 0) {
      EXPECT_THROW(group.start_send(View::vector(memory.data(), 16, DType::f32), 1, 0, device->lane(Lane::compute)),
                   CommError);
    }
    HostStream host;
    world->run(Operation{}, host);  // the other rank makes no call
  }
  unsetenv("ESPALIER_FAKE_NCCL_PATIENCE");
  fake::forget_error();
}

}  // namespace
}  // namespace espalier::testing
