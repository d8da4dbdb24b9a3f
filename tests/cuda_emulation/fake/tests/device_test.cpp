// CudaDevice over the fake runtime: in every order of work that streams and events allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "check.hpp"
#include "controls.hpp"
#include "device.hpp"
#include "espalier/error.hpp"
#include "fused_cuda_backend.hpp"
#include "scratch.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Sets a variable for a test's time.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::device);
    return error.what();
  }
  return "no DeviceError";
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  CudaDeviceTest() : device_(0) {}
  ~CudaDeviceTest() override {
    fake::ignore_wait(0);
    fake::forget_error();
  }

  Stream& compute() { return device_.lane(Lane::compute); }
  std::vector<float> read(const View& view) {
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    device_.copy(view, View::matrix(values.data(), view.rows, view.cols, DType::f32), compute());
    device_.wait(compute());
    return values;
  }

  CudaDevice device_;
};

TEST(CudaDevices, NoneGivesOneClearMessage) {
  const Variable none("ESPALIER_FAKE_CUDA_DEVICES", "0");
  const std::string message = error_of([] { CudaDevice device(-1); });
  EXPECT_THAT(message, StartsWith("no CUDA device: CUDA driver version is insufficient"));
  EXPECT_THAT(message, HasSubstr("no driver is loaded"));
  EXPECT_THAT(message, HasSubstr("backend.device = \"cpu\""));
}

TEST(CudaDevices, AnOldDriverIsNamedWithBothVersions) {
  const Variable old("ESPALIER_FAKE_CUDA_DRIVER", "12040");
  const std::string message = error_of([] { CudaDevice device(-1); });
  EXPECT_THAT(message, StartsWith("no CUDA device: CUDA driver version is insufficient"));
  EXPECT_THAT(message, HasSubstr("the driver's CUDA version is 12.4"));
  EXPECT_THAT(message, HasSubstr("install a driver of CUDA "));
}

TEST(CudaDevices, AGpuWithoutKernelsIsRefusedAtOnce) {
  const Variable old("ESPALIER_FAKE_CUDA_CAPABILITY", "75");
  const std::string message = error_of([] { CudaDevice device(0); });
  EXPECT_THAT(message, StartsWith("cuda:0: Emulated GPU (compute capability 7.5) cannot run the plugin's kernels: "));
  EXPECT_THAT(message, HasSubstr("compiled for 8.0"));
}

TEST(CudaDevices, WhatSeveralStreamsNeedIsSaidUnlessSet) {
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  const Variable own("CUDA_DEVICE_MAX_CONNECTIONS", "1");
  CudaDevice device(0);
  EXPECT_STREQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "1") << "the environment has the last word";
}

TEST(CudaDevices, RanksTakeTheirOwn) {
  const Variable two("ESPALIER_FAKE_CUDA_DEVICES", "2");
  const Variable ranks("MPI_LOCALNRANKS", "3");
  {
    const Variable rank("MPI_LOCALRANKID", "1");
    EXPECT_EQ(CudaDevice(-1).name(), "cuda:1");
    EXPECT_EQ(CudaDevice(0).name(), "cuda:0");
    EXPECT_THAT(error_of([] { CudaDevice device(2); }),
                HasSubstr("backend.index: there is no GPU 2; this process sees 2"));
  }
  const Variable rank("MPI_LOCALRANKID", "2");
  EXPECT_THAT(error_of([] { CudaDevice device(-1); }), HasSubstr("local rank 2: this host has 2 GPUs and 3 ranks"));
  const Variable one("ESPALIER_FAKE_CUDA_DEVICES", "1");
  EXPECT_EQ(CudaDevice(-1).name(), "cuda:0") << "a launcher that shows each rank its own";
}

TEST_F(CudaDeviceTest, ReservationsAreZeroAndCounted) {
  DeviceMemory weights = device_.reserve(1000, "weights");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weights.data()) % 64, 0u);
  EXPECT_EQ(read(View::vector(weights.data(), 250, DType::f32)), std::vector<float>(250, 0.0f));
  {
    DeviceMemory more = device_.reserve(500, "weights");
    DeviceMemory state = device_.reserve(100, "optimizer");
  }
  const std::vector<MemoryUse> use = device_.memory_use();
  ASSERT_EQ(use.size(), 2u);
  EXPECT_EQ(use[0].purpose, "weights");
  EXPECT_EQ(use[0].bytes, 1000u);
  EXPECT_EQ(use[0].peak, 1500u);
  EXPECT_EQ(use[1].bytes, 0u);
  EXPECT_FALSE(device_.reserve(0, "nothing"));
}

TEST_F(CudaDeviceTest, TooMuchIsRefusedWithNumbers) {
  const std::string message =
      error_of([&] { DeviceMemory memory = device_.reserve(std::size_t{1} << 40, "activations"); });
  EXPECT_THAT(message, StartsWith("cuda:0: cannot reserve 1099511627776 bytes for activations: "));
  EXPECT_THAT(message, HasSubstr(" bytes are free"));
  EXPECT_TRUE(device_.reserve(64, "activations")) << "the device goes on";
}

TEST_F(CudaDeviceTest, CopiesBetweenAnyTwoPlaces) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    fake::set_seed(seed);
    for (const std::int64_t rows : {1, 3, 700}) {
      for (const std::int64_t gap : {0, 5}) {
        const std::int64_t cols = 1000;  // 700 rows are more than a slot of the staging memory
        std::vector<float> host(static_cast<std::size_t>(rows * cols));
        std::iota(host.begin(), host.end(), 1.0f);
        const auto bytes = static_cast<std::size_t>(rows * (cols + gap)) * 4;
        DeviceMemory memory = device_.reserve(bytes, "a");
        DeviceMemory other = device_.reserve(bytes, "b");
        const View a{memory.data(), rows, cols, cols + gap, DType::f32};
        const View b{other.data(), rows, cols, cols + gap, DType::f32};
        const View packed = View::matrix(host.data(), rows, cols, DType::f32);
        device_.copy(packed, a, compute());
        device_.copy(a, b, compute());
        EXPECT_EQ(read(b), host) << rows << " rows, gap " << gap;
        std::vector<float> wide(static_cast<std::size_t>(rows * (cols + gap)), -1.0f);
        device_.copy(b, View{wide.data(), rows, cols, cols + gap, DType::f32}, compute());
        device_.wait(compute());
        EXPECT_EQ(wide[static_cast<std::size_t>((rows - 1) * (cols + gap))],
                  host[static_cast<std::size_t>((rows - 1) * cols)]);
        if (gap > 0) {
          EXPECT_EQ(wide[static_cast<std::size_t>(cols)], -1.0f) << "between the rows";
        }
      }
    }
  }
}

TEST_F(CudaDeviceTest, ManyCopiesInFlight) {
  constexpr std::int64_t kCopies = 50;  // more than the staging memory has slots
  DeviceMemory memory = device_.reserve(kCopies * 4, "ids");
  float value = 0;
  std::vector<float> back(kCopies);
  for (std::int64_t i = 0; i < kCopies; ++i) {
    value = static_cast<float>(i);
    const View place = View::vector(memory.data() + 4 * i, 1, DType::f32);
    device_.copy(View::vector(&value, 1, DType::f32), place, compute());  // `value` may change as soon as it returns
    device_.copy(place, View::vector(&back[static_cast<std::size_t>(i)], 1, DType::f32), compute());
  }
  device_.wait(compute());
  std::vector<float> want(kCopies);
  std::iota(want.begin(), want.end(), 0.0f);
  EXPECT_EQ(back, want);
}

TEST_F(CudaDeviceTest, ZerosInRowsOnly) {
  DeviceMemory memory = device_.reserve(40, "a");
  const View all = View::matrix(memory.data(), 2, 5, DType::f32);
  const std::vector<float> ones(10, 1.0f);
  device_.copy(View::matrix(const_cast<float*>(ones.data()), 2, 5, DType::f32), all, compute());
  device_.fill_zero(all.col_range(1, 3), compute());
  EXPECT_EQ(read(all), (std::vector<float>{1, 0, 0, 1, 1, 1, 0, 0, 1, 1}));
  device_.fill_zero(all, compute());
  EXPECT_EQ(read(all), std::vector<float>(10, 0.0f));
}

/// Sends a number through all lanes and back; each hop is on another lane.
float through_all_lanes(CudaDevice& device, std::uint64_t seed) {
  fake::set_seed(seed);
  DeviceMemory memory = device.reserve(4 * (kLanes + 1), "hops");
  const View all = View::vector(memory.data(), kLanes + 1, DType::f32);
  float value = 7;
  Stream* last = &device.lane(Lane::compute);
  device.copy(View::vector(&value, 1, DType::f32), all.flat_range(0, 1), *last);
  for (int i = 0; i < kLanes; ++i) {
    Stream& lane = device.lane(static_cast<Lane>(i));
    device.order(*last, lane);
    device.copy(all.flat_range(i, i + 1), all.flat_range(i + 1, i + 2), lane);
    last = &lane;
  }
  float result = -1;
  device.copy(all.flat_range(kLanes, kLanes + 1), View::vector(&result, 1, DType::f32), *last);
  device.wait(*last);
  for (int i = 0; i < kLanes; ++i) device.wait(device.lane(static_cast<Lane>(i)));
  return result;
}

TEST_F(CudaDeviceTest, OrderHoldsBetweenLanes) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) EXPECT_EQ(through_all_lanes(device_, seed), 7.0f) << "seed " << seed;
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    fake::ignore_wait(2);
    wrong += through_all_lanes(device_, seed) != 7.0f ? 1 : 0;
  }
  EXPECT_GT(wrong, 10) << "the test sees a missing order";
}

TEST_F(CudaDeviceTest, ScratchIsOneBlockALane) {
  Scratch scratch(device_);
  std::byte* first = scratch.bytes(100, compute());
  EXPECT_EQ(scratch.bytes(1 << 20), first);
  EXPECT_NE(scratch.bytes(100, device_.lane(Lane::data)), first);
  device_.fill_zero(View::vector(first, 100, DType::u8), compute());  // in flight while the block grows
  EXPECT_NE(scratch.bytes((1 << 20) + 1), first);
  device_.wait(compute());
}

TEST(CudaErrors, AreNamedWhereTheyAreNoticed) {
  for (const bool synchronous : {false, true}) {
    FusedCudaBackend backend({0, synchronous, false});
    Device& device = backend.device();
    Stream& stream = device.lane(Lane::compute);
    DeviceMemory memory = device.reserve(64, "a");
    const View square = View::matrix(memory.data(), 2, 2, DType::f32);
    fake::fault_at("matmul");
    Matmul product;
    product.a = product.b = product.dst = square;
    const std::string at_launch = error_of([&] { backend.kernels().matrix->matmul(product, stream); });
    if (synchronous) {
      EXPECT_THAT(at_launch, HasSubstr("matmul [2, 2] x [2, 2], f32 to f32: unspecified launch failure"));
    } else {
      EXPECT_EQ(at_launch, "no DeviceError");
      const std::string later = error_of([&] { device.wait(stream); });
      EXPECT_THAT(later, HasSubstr("waiting for a stream: unspecified launch failure"));
      EXPECT_THAT(later, HasSubstr("backend.synchronous = true names it"));
      EXPECT_THAT(error_of([&] { device.fill_zero(square, stream); }), HasSubstr("unspecified launch failure"))
          << "it sticks";
    }
    fake::forget_error();
  }
  synchronous_launches = false;
}

TEST(FusedCudaBackend, SaysWhatItRunsOn) {
  FusedCudaBackend backend({});
  EXPECT_THAT(backend.description(),
              StartsWith("kernels_fused_cuda: Emulated GPU (cuda:0 of 1, 0000:01:00.0, sm_80, 4 GiB), CUDA "));
  EXPECT_FALSE(backend.supports({DType::bf16, DType::f32, DType::f32, false}).has_value());
  EXPECT_TRUE(backend.supports({DType::bf16, DType::bf16, DType::bf16, false}).has_value());
}

}  // namespace
}  // namespace espalier::kernels_fused::cuda
