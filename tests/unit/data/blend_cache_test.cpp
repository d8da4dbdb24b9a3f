// Orders of large blends, kept in files like the index arrays.
#include "blend_cache.hpp"

#include "dataset.hpp"
#include "espalier/error.hpp"
#include "parity/data/support.hpp"
#include "unit/data/host_double.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

BlendRequest request_in(const TemporaryFolder& folder, std::size_t parts, std::int64_t positions) {
  std::vector<double> weights;
  for (std::size_t k = 0; k < parts; ++k) weights.push_back(1.0 + static_cast<double>(k * 7 % 13));
  return {renormalised_weights(normalised_weights(weights)), positions, folder / "mix"};
}

TEST(BlendCache, TheMappedOrderIsTheOneThatWasMade) {
  const TemporaryFolder folder;
  for (const auto& [parts, positions] : {std::pair{2, 1}, {5, 5000}, {700, 20000}}) {
    const BlendRequest request = request_in(folder, static_cast<std::size_t>(parts), positions);
    std::string why;
    EXPECT_FALSE(open_blend(request, why));
    store_blend(request);
    const auto order = open_blend(request, why);
    ASSERT_TRUE(order) << why;
    const BlendOrder made(request.weights, positions);
    EXPECT_EQ(order->counts(), made.counts());
    std::vector<std::int64_t> seen(static_cast<std::size_t>(parts), 0);
    for (std::int64_t i = 0; i < positions; ++i) {
      ASSERT_EQ(order->part(i), made.part(i));
      ASSERT_EQ(order->sample(i), seen[static_cast<std::size_t>(order->part(i))]++);
      ASSERT_EQ(order->sample(i), made.sample(i));
    }
  }
}

TEST(BlendCache, OtherWeightsAndDamageAreNoticed) {
  const TemporaryFolder folder;
  const BlendRequest request = request_in(folder, 5, 5000);
  store_blend(request);
  std::string why;
  EXPECT_FALSE(open_blend(request_in(folder, 6, 5000), why));
  EXPECT_FALSE(open_blend(request_in(folder, 5, 5001), why));
  for (const std::string& name : folder.names()) {
    if (!name.ends_with("parts.npy")) continue;
    std::string bytes = read_file(folder / name);
    bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);
    write_file(folder / name, bytes);
  }
  const auto order = open_blend(request, why);
  ASSERT_TRUE(order) << why;
  EXPECT_THROW(order->part(0), IoError);
  EXPECT_FALSE(open_blend(request, why)) << "the next start makes it anew";
}

TEST(BlendCache, ALargeBlendOfADatasetIsKept) {
  const TemporaryFolder folder;
  const std::string path = copy_pair("corpora/c", folder);
  HostDouble host(make_self_communicator("world"));
  host.change_facts().model.seq_length = 8;
  host.change_facts().batch.train_samples = 1'010'000;
  std::vector<std::vector<Key>> entries;
  for (int k = 0; k < 20; ++k) {
    const std::string range = std::to_string(0.05 * k).substr(0, 4) + ":" + std::to_string(0.05 * (k + 1)).substr(0, 4);
    entries.push_back({{"path", path}, {"weight", 1.0 + k % 3}, {"range", range}});
  }
  const ConfigTable table = checked_data_table({{"train", tables_of(entries)}, {"valid", tables_of({})}});
  std::vector<std::int32_t> first(9), second(9);
  {
    const IndexedDataset data(ConfigView(table, "data"), host);
    EXPECT_EQ(host.logged("order of the blend built").size(), 1U);
    data.read(0, 1'009'999, first, {});
  }
  host.clear_log();
  const IndexedDataset again(ConfigView(table, "data"), host);
  EXPECT_EQ(host.logged("built in").size() + host.logged("built with").size(), 0U);
  again.read(0, 1'009'999, second, {});
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace espalier::data_indexed
