#include <vector>

#include "espalier/communicator.hpp"
#include "support/mpi_test.hpp"

namespace espalier {
namespace {

class HostStream final : public Stream {};

constexpr std::int64_t kMany = (std::int64_t{1} << 31) + 4096;  // beyond a 32-bit count

TEST(LargeMessages, BroadcastAndSendMoreThanTwoGiB) {
  ESPALIER_REQUIRE_RANKS(2);
  const auto world = make_world_communicator();
  HostStream stream;
  std::vector<std::uint8_t> data(kMany);
  const View view = View::vector(data.data(), kMany, DType::u8);
  if (world->rank() == 0) {
    for (std::int64_t i = 0; i < kMany; i += 4093)
      data[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i % 251);
    data.back() = 77;
  }
  world->finish(world->start_broadcast(view, 0, stream), stream);
  for (std::int64_t i = 0; i < kMany; i += 4093) ASSERT_EQ(data[static_cast<std::size_t>(i)], i % 251) << i;
  EXPECT_EQ(data.back(), 77);
  if (world->rank() == 1) {
    data.back() = 78;
    world->finish(world->start_send(view, 0, 5, stream), stream);
  } else if (world->rank() == 0) {
    data.back() = 0;
    world->finish(world->start_receive(view, 1, 5, stream), stream);
    EXPECT_EQ(data.back(), 78);
  }
}

TEST(LargeMessages, AllReduceOfMoreThanTwoGiB) {
  ESPALIER_REQUIRE_RANKS(2);
  const auto world = make_world_communicator();
  HostStream stream;
  constexpr std::int64_t kElements = (std::int64_t{1} << 30) + 1001;  // BF16: more than 2^31 bytes
  std::vector<BFloat16> data(kElements, to_bf16(1.5f));
  world->finish(
      world->start_all_reduce(View::vector(data.data(), kElements, DType::bf16), Reduce::sum_rank_order, stream),
      stream);
  const std::uint16_t expected = to_bf16(1.5f * static_cast<float>(world->size())).bits;
  for (const BFloat16 value : data) ASSERT_EQ(value.bits, expected);
}

}  // namespace
}  // namespace espalier
