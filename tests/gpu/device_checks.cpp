// What Device promises, on whichever CUDA runtime the program is linked with: a real one here, the fake in
// tests/cuda_emulation, which shows that the checks themselves are right.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "espalier/error.hpp"
#include "fused_cuda_backend.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

using Numbers = std::vector<float>;

class DeviceChecks : public ::testing::Test {
 protected:
  DeviceChecks() : backend_(Settings{}), device_(backend_.device()) {}

  Stream& lane(Lane lane = Lane::compute) { return device_.lane(lane); }
  static View on_host(Numbers& numbers) {
    return View::vector(numbers.data(), static_cast<std::int64_t>(numbers.size()), DType::f32);
  }
  static Numbers counting(std::int64_t n) {
    Numbers numbers(static_cast<std::size_t>(n));
    std::iota(numbers.begin(), numbers.end(), 1.0f);
    return numbers;
  }
  Numbers read(const View& view, Lane from = Lane::compute) {
    Numbers numbers(static_cast<std::size_t>(view.elements()));
    device_.copy(view, View::matrix(numbers.data(), view.rows, view.cols, DType::f32), lane(from));
    device_.wait(lane(from));
    return numbers;
  }
  void scale(const View& view, double by) { backend_.kernels().update->scale(view, by, nullptr, nullptr, lane()); }

  FusedCudaBackend backend_;
  Device& device_;
};

TEST_F(DeviceChecks, NewMemoryIsZeroWhereverItLies) {
  const std::int64_t n = 300'001;
  const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
  for (int round = 0; round < 2; ++round) {  // the second time it is memory that was used
    DeviceMemory far = device_.reserve(bytes, "far");
    DeviceMemory near = device_.reserve_near_host(bytes, "near");
    for (const DeviceMemory* memory : {&far, &near}) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % 64, 0u);
      const View view = View::vector(memory->data(), n, DType::f32);
      EXPECT_EQ(read(view, Lane::data), Numbers(static_cast<std::size_t>(n), 0.0f));
      Numbers numbers = counting(n);
      device_.copy(on_host(numbers), view, lane());
      device_.wait(lane());
    }
  }
}

/// Lengths on both sides of a slot of the staging memory.
TEST_F(DeviceChecks, CopiesBetweenAllPlaces) {
  for (const std::int64_t rows : {1, 7, 900}) {
    for (const std::int64_t gap : {0, 3}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, gap " + std::to_string(gap));
      const std::int64_t cols = 1000;
      const auto bytes = static_cast<std::size_t>(rows * (cols + gap)) * sizeof(float);
      DeviceMemory far = device_.reserve(bytes, "far"), other = device_.reserve(bytes, "far");
      DeviceMemory near = device_.reserve_near_host(bytes, "near");
      Numbers numbers = counting(rows * cols);
      const auto place = [&](const DeviceMemory& memory) {
        return View{memory.data(), rows, cols, cols + gap, DType::f32};
      };
      device_.copy(View::matrix(numbers.data(), rows, cols, DType::f32), place(far), lane());
      device_.copy(place(far), place(near), lane());
      device_.copy(place(near), place(other), lane());
      EXPECT_EQ(read(place(near)), numbers);
      EXPECT_EQ(read(place(other)), numbers);
      device_.fill_zero(place(near), lane());
      EXPECT_EQ(read(place(near)), Numbers(numbers.size(), 0.0f));
    }
  }
}

TEST_F(DeviceChecks, KernelsReachMemoryNearTheHost) {
  const std::int64_t n = 4099;
  DeviceMemory memory = device_.reserve_near_host(static_cast<std::size_t>(n) * sizeof(float), "near");
  const View view = View::vector(memory.data(), n, DType::f32);
  Numbers numbers = counting(n);
  device_.copy(on_host(numbers), view, lane());
  scale(view, 2.0);
  scale(view.flat_range(1, n), 0.5);  // not aligned
  device_.wait(lane());
  EXPECT_EQ(view.as<float>()[0], 2.0f);  // the host sees it without a copy
  EXPECT_EQ(view.as<float>()[n - 1], static_cast<float>(n));
}

/// More copies than there are slots; sources change and targets are read at once.
TEST_F(DeviceChecks, HostMemoryIsFreeWhenTheCallReturns) {
  constexpr std::int64_t kCopies = 100, kLength = 5000;
  DeviceMemory memory = device_.reserve(kCopies * kLength * sizeof(float), "far");
  std::vector<Numbers> back(kCopies, Numbers(kLength));
  Numbers source(kLength);
  for (std::int64_t i = 0; i < kCopies; ++i) {
    source.assign(kLength, static_cast<float>(i));
    const View place = View::vector(memory.data() + i * kLength * 4, kLength, DType::f32);
    device_.copy(on_host(source), place, lane());
    scale(place, 2.0);
    device_.copy(place, on_host(back[static_cast<std::size_t>(i)]), lane());
  }
  source.assign(kLength, -1.0f);
  device_.wait(lane());
  for (std::int64_t i = 0; i < kCopies; ++i) {
    EXPECT_EQ(back[static_cast<std::size_t>(i)], Numbers(kLength, 2.0f * static_cast<float>(i))) << i;
  }
}

/// A number goes through all lanes, many times over, behind work that takes a while.
TEST_F(DeviceChecks, LanesWaitForEachOther) {
  const std::int64_t n = 100'003, rounds = 60;  // more events than the pool has
  DeviceMemory one = device_.reserve(static_cast<std::size_t>(n) * 4, "far"),
               two = device_.reserve(static_cast<std::size_t>(n) * 4, "far");
  View from = View::vector(one.data(), n, DType::f32), to = View::vector(two.data(), n, DType::f32);
  Numbers numbers(static_cast<std::size_t>(n), 1.0f);
  device_.copy(on_host(numbers), from, lane());
  for (std::int64_t i = 0; i < rounds; ++i) {
    scale(from, 2.0);
    scale(from, 0.5);
    Stream& other = lane(static_cast<Lane>(1 + i % (kLanes - 1)));
    device_.order(lane(), other);
    device_.copy(from, to, other);
    device_.order(other, lane());
    device_.fill_zero(from, lane());
    std::swap(from, to);
  }
  EXPECT_EQ(read(from), numbers);
}

TEST_F(DeviceChecks, GoesOnAfterARefusal) {
  EXPECT_THROW(static_cast<void>(device_.reserve(std::size_t{1} << 46, "far")), DeviceError);
  DeviceMemory memory = device_.reserve(4096, "far");
  const View view = View::vector(memory.data(), 1024, DType::f32);
  Numbers numbers = counting(1024);
  device_.copy(on_host(numbers), view, lane());
  scale(view, 1.0);
  EXPECT_EQ(read(view), numbers);
}

}  // namespace
}  // namespace espalier::kernels_fused::cuda
