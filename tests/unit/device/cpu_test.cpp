#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "espalier/device.hpp"

namespace espalier {
namespace {

std::size_t used(const Device& device, std::string_view purpose) {
  for (const MemoryUse& use : device.memory_use()) {
    if (use.purpose == purpose) return use.bytes;
  }
  return 0;
}

class Reserve : public testing::TestWithParam<std::size_t> {};

TEST_P(Reserve, IsAlignedZeroAndCounted) {
  const auto device = make_cpu_device();
  {
    DeviceMemory memory = device->reserve(GetParam(), "weights");
    ASSERT_TRUE(memory);
    EXPECT_EQ(memory.bytes(), GetParam());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0u);
    for (std::size_t i = 0; i < memory.bytes(); ++i) ASSERT_EQ(memory.data()[i], std::byte{0}) << i;
    memory.data()[memory.bytes() - 1] = std::byte{1};
    EXPECT_EQ(used(*device, "weights"), GetParam());
  }
  EXPECT_EQ(used(*device, "weights"), 0u);
  EXPECT_EQ(device->memory_use().at(0).peak, GetParam());
  // A block that was written and given back is zero again when it is reserved the next time.
  DeviceMemory again = device->reserve(GetParam(), "weights");
  EXPECT_EQ(again.data()[again.bytes() - 1], std::byte{0});
}

INSTANTIATE_TEST_SUITE_P(Sizes, Reserve,
                         testing::Values(1, 63, 64, 4097, (std::size_t{4} << 20) - 1, std::size_t{4} << 20,
                                         (std::size_t{6} << 20) + 5));

TEST(CpuDevice, MovesMemoryWithItsBytes) {
  const auto device = make_cpu_device();
  DeviceMemory a = device->reserve(100, "a");
  DeviceMemory b = device->reserve(200, "b");
  std::byte* place = a.data();
  b = std::move(a);
  EXPECT_EQ(b.data(), place);
  EXPECT_FALSE(a);
  EXPECT_EQ(used(*device, "a"), 100u);
  EXPECT_EQ(used(*device, "b"), 0u);
  DeviceMemory c(std::move(b));
  EXPECT_EQ(c.bytes(), 100u);
  c = DeviceMemory();
  EXPECT_EQ(used(*device, "a"), 0u);
}

TEST(CpuDevice, NamesPurposeAndBytesWhenItCannot) {
  const auto device = make_cpu_device();
  try {
    device->reserve(std::size_t{1} << 60, "activations");
    FAIL() << "a million terabytes were reserved";
  } catch (const DeviceError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("activations"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(std::size_t{1} << 60)), std::string::npos) << text;
  }
  EXPECT_FALSE(device->reserve(0, "nothing"));
}

TEST(CpuDevice, CopiesAndClearsStridedViews) {
  const auto device = make_cpu_device();
  Stream& stream = device->lane(Lane::copy);
  std::vector<std::int32_t> from(12), to(20, -1);
  std::iota(from.begin(), from.end(), 0);
  const View source{from.data(), 3, 2, 4, DType::i32};
  const View target{to.data(), 3, 2, 5, DType::i32};
  device->copy(source, target, stream);
  device->wait(stream);
  EXPECT_EQ(to, (std::vector<std::int32_t>{0, 1, -1, -1, -1, 4, 5, -1, -1, -1, 8, 9, -1, -1, -1, -1, -1, -1, -1, -1}));
  device->fill_zero(target, stream);
  EXPECT_EQ(to, (std::vector<std::int32_t>{0, 0, -1, -1, -1, 0, 0, -1, -1, -1, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1}));
}

}  // namespace
/// A device of its own memory that knows nothing of the host's.
class Distant final : public Device {
 public:
  std::string_view name() const override { return "distant:0"; }
  bool host_accessible() const override { return false; }
  DeviceMemory reserve(std::size_t, std::string_view) override { return {}; }
  Stream& lane(Lane lane) override { return cpu_->lane(lane); }
  void order(Stream&, Stream&) override {}
  void copy(const View&, const View&, Stream&) override {}
  void fill_zero(const View&, Stream&) override {}
  void wait(Stream&) override {}
  std::vector<MemoryUse> memory_use() const override { return {}; }

 protected:
  void release(void*, std::size_t) noexcept override {}

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device();
};

TEST(NearHost, IsTheSameMemoryOnTheCpuAndRefusedWhereThereIsNone) {
  const auto cpu = make_cpu_device();
  const DeviceMemory state = cpu->reserve_near_host(4096, "optimizer");
  ASSERT_TRUE(state);
  EXPECT_EQ(cpu->memory_use().at(0).bytes, 4096u);
  Distant distant;
  try {
    const DeviceMemory none = distant.reserve_near_host(4096, "optimizer");
    FAIL() << "accepted";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("distant:0: optimizer (4096 bytes) cannot be kept in host memory"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace espalier
