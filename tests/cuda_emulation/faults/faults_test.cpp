// The emulator itself: what it must report, with file and line, whatever the order of threads; and that it is silent
// else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda_emulation/emulator.hpp"
#include "espalier/error.hpp"
#include "faulty_kernels.hpp"

namespace espalier::cuda_emulation_tests {
namespace {

using cuda_emulation::options;
using cuda_emulation::Order;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

struct FaultCase {
  Fault fault;
  std::string name;
  std::string words;  ///< that the report must contain
};
std::ostream& operator<<(std::ostream& out, const FaultCase& fault) { return out << fault.name; }

class Faults : public ::testing::TestWithParam<std::tuple<FaultCase, Order>> {
 protected:
  void SetUp() override { options() = {std::get<1>(GetParam()), 3, true}; }
  void TearDown() override { options() = {}; }
};

TEST_P(Faults, AreReportedWithFileAndLine) {
  const FaultCase& fault = std::get<0>(GetParam());
  std::vector<float> out(256 + 4);
  const std::string report = error_of([&] { launch_faulty(fault.fault, out.data()); });
  EXPECT_THAT(report, HasSubstr("kernel faulty, block (0,0,0)"));
  EXPECT_THAT(report, HasSubstr(fault.words));
  EXPECT_THAT(report, HasSubstr("faulty_kernels.cu:" + std::to_string(line_of(fault.fault))));
  // The next launch starts afresh.
  launch_faulty(Fault::none, out.data());
  EXPECT_EQ(out[0], 255);
}

std::string fault_name(const ::testing::TestParamInfo<Faults::ParamType>& info) {
  const char* const orders[] = {"Forward", "Reverse", "Random"};
  return std::get<0>(info.param).name + orders[static_cast<int>(std::get<1>(info.param))];
}

const FaultCase kFaults[] = {
    {Fault::removed_barrier, "RemovedBarrier", "a race in shared memory"},
    {Fault::divergent_barrier, "DivergentBarrier", "a block barrier in divergent code"},
    {Fault::barrier_after_return, "BarrierAfterReturn", "have returned"},
    {Fault::short_mask, "ShortMask", "wait in the warp collective"},
    {Fault::lane_outside_mask, "LaneOutsideMask", "outside its mask"},
    {Fault::two_collectives, "TwoCollectives", "a warp collective in divergent code"},
    {Fault::overrun, "Overrun", "shared memory index 256 of 256"},
    {Fault::underrun, "Underrun", "shared memory index -1 of 256"},
    {Fault::unwritten_slot, "UnwrittenSlot", "that nobody has written"},
    {Fault::read_and_write, "ReadAndWrite", "a race in shared memory"},
    {Fault::warp_race, "WarpRace", "a race in shared memory"},
    {Fault::unwritten_dynamic, "UnwrittenDynamic", "that nobody has written"},
    {Fault::dynamic_overrun, "DynamicOverrun", "of 64"},
    {Fault::misaligned_vector, "MisalignedVector", "an access of 16 bytes"},
    {Fault::too_much_static, "TooMuchStatic", "static shared memory of 50176 bytes"},
};

INSTANTIATE_TEST_SUITE_P(Emulator, Faults,
                         ::testing::Combine(::testing::ValuesIn(kFaults),
                                            ::testing::Values(Order::forward, Order::reverse, Order::random)),
                         fault_name);

TEST(Emulator, KernelWithoutMistakesRuns) {
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    options() = {order, 5, true};
    std::vector<float> out(256);
    launch_faulty(Fault::none, out.data());
    for (int i = 0; i < 256; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], 255 - i);
  }
  options() = {};
}

TEST(Emulator, CollectivesGiveWhatTheDeviceGives) {
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      options() = {order, seed, true};
      EXPECT_EQ(count_collective_mismatches(), 0);
    }
  }
  options() = {};
}

TEST(Emulator, LimitsOfTheDeviceHold) {
  EXPECT_EQ(error_of([] { launch_empty(1, 1024, 1, 163 << 10); }), "");
  EXPECT_THAT(error_of([] { launch_empty(1, 1056, 1, 0); }), HasSubstr("kernel empty: a block of 1056 x 1 x 1"));
  EXPECT_THAT(error_of([] { launch_empty(1, 0, 1, 0); }), HasSubstr("a block of 0 x 1 x 1"));
  EXPECT_THAT(error_of([] { launch_empty(1, 8, 65, 0); }), HasSubstr("a block of 8 x 1 x 65"));
  EXPECT_THAT(error_of([] { launch_empty(65536, 32, 1, 0); }), HasSubstr("a grid of 1 x 65536 x 1"));
  EXPECT_THAT(error_of([] { launch_empty(0, 32, 1, 0); }), HasSubstr("a grid of 1 x 0 x 1"));
  EXPECT_THAT(error_of([] { launch_empty(1, 32, 1, (163 << 10) + 1); }), HasSubstr("dynamic shared memory"));
}

/// Keeps launches until they are asked for.
class Later final : public cuda_emulation::Runtime {
 public:
  void enqueue(cudaStream_t, const std::string& name, std::function<void()> work) override {
    names.push_back(name);
    queue.push_back(std::move(work));
  }
  void wait(cudaStream_t) override {
    for (const auto& work : queue) work();
    queue.clear();
  }
  std::vector<std::string> names;
  std::vector<std::function<void()>> queue;
};

TEST(Emulator, RuntimeDecidesWhenLaunchesRun) {
  Later later;
  cuda_emulation::set_runtime(&later);
  std::vector<float> out(256);
  launch_faulty(Fault::none, out.data());
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(later.names, std::vector<std::string>{"faulty"});
  cuda_emulation::wait(nullptr);
  EXPECT_EQ(out[0], 255);
  cuda_emulation::set_runtime(nullptr);
}

#ifdef __SANITIZE_ADDRESS__
TEST(EmulatorDeathTest, GlobalOverrunIsSeenByTheSanitizer) {
  std::vector<float> one_too_few(255);
  EXPECT_DEATH(launch_faulty(Fault::none, one_too_few.data()), "heap-buffer-overflow(.|\n)*faulty_kernels.cu");
}
#endif

TEST(Emulator, RacesCanBeLeftUnwatched) {
  options() = {Order::forward, 1, false};
  std::vector<float> out(256);
  launch_faulty(Fault::read_and_write, out.data());  // ends well, by luck
  options() = {};
}

}  // namespace
}  // namespace espalier::cuda_emulation_tests
