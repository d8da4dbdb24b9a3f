// A training order that is prolonged, core's sampling and lists of paths as the recipe has them.
#include "dataset.hpp"
#include "espalier/error.hpp"
#include "parity/data/support.hpp"
#include "unit/data/host_double.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

class PlansTest : public ::testing::Test {
 protected:
  PlansTest()
      : host_(make_self_communicator("world")),
        a_(copy_pair("corpora/a", folder_)),
        b_(copy_pair("corpora/b", folder_)) {
    host_.change_facts().batch.train_samples = 900;
    host_.change_facts().batch.eval_samples = 20;
    host_.change_facts().batch.eval_runs = 1;
  }

  std::unique_ptr<IndexedDataset> make(std::vector<Key> keys) {
    const ConfigTable table = checked_data_table(keys);
    return std::make_unique<IndexedDataset>(ConfigView(table, "data"), host_);
  }
  std::vector<Key> blend(std::vector<std::int64_t> planned) {
    ConfigValue::Array list;
    for (const std::int64_t value : planned) {
      list.push_back({value, {}});
    }
    return {{"train", tables_of({{{"path", a_}, {"weight", 0.4}}, {{"path", b_}, {"weight", 0.6}}})},
            {"split", std::string("90,10,0")},
            {"planned_samples", list}};
  }
  std::vector<std::int32_t> samples(const IndexedDataset& data, std::int64_t from, std::int64_t to) {
    std::vector<std::int32_t> all, tokens(static_cast<std::size_t>(data.sample_tokens()));
    for (std::int64_t i = from; i < to; ++i) {
      data.read(0, i, tokens, {});
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    return all;
  }

  TemporaryFolder folder_;
  HostDouble host_;
  std::string a_, b_;
};

TEST_F(PlansTest, MoreSamplesChangeTheOrderUnlessTheyArePlannedOnTop) {
  const auto first = make(blend({}));
  host_.change_facts().batch.train_samples = 2500;
  const auto anew = make(blend({}));
  EXPECT_NE(anew->fingerprint(), first->fingerprint());
  EXPECT_FALSE(anew->continues(first->fingerprint(), 10));

  const auto prolonged = make(blend({900}));
  EXPECT_EQ(prolonged->sets()[0].samples, 2500);
  EXPECT_EQ(samples(*prolonged, 0, 900), samples(*first, 0, 900));
  EXPECT_TRUE(prolonged->continues(first->fingerprint(), 900));
  EXPECT_FALSE(prolonged->continues(first->fingerprint(), 901)) << "that far the plan did not reach";
  EXPECT_TRUE(prolonged->continues(prolonged->fingerprint(), 2500));
  EXPECT_FALSE(prolonged->continues(anew->fingerprint(), 1));
  // The further plan is an order of its own, and once more prolonged it stays.
  EXPECT_NE(samples(*prolonged, 900, 1800), samples(*first, 0, 900));
  host_.change_facts().batch.train_samples = 2700;
  const auto again = make(blend({900, 2500}));
  EXPECT_EQ(samples(*again, 0, 2500), samples(*prolonged, 0, 2500));
  EXPECT_TRUE(again->continues(first->fingerprint(), 900));
  EXPECT_TRUE(again->continues(prolonged->fingerprint(), 2500));
  EXPECT_EQ(again->sets()[0].samples, 2700);
  EXPECT_EQ(host_.logged("from sample 900 on a further plan").size(), 2U);
}

TEST_F(PlansTest, AnEarlierEndOfTheSamePlan) {
  const auto whole = make(blend({}));
  host_.change_facts().batch.train_samples = 300;
  const auto shorter = make(blend({900}));
  EXPECT_EQ(shorter->fingerprint(), whole->fingerprint());
  EXPECT_EQ(shorter->sets()[0].samples, 300);
  EXPECT_EQ(samples(*shorter, 0, 300), samples(*whole, 0, 300));
  EXPECT_NE(message_of<ConfigError>([&] { make(blend({900, 900})); }).find("is not rising"), std::string::npos);
}

TEST_F(PlansTest, CoreSamplingIsAnotherOrder) {
  std::vector<Key> keys = blend({});
  const auto bigscience = make(keys);
  keys.push_back({"sampling", std::string("megatron_core")});
  const auto core = make(keys);
  EXPECT_NE(core->fingerprint(), bigscience->fingerprint());
  EXPECT_EQ(core->sets()[0].samples, 900);
  EXPECT_NO_THROW(samples(*core, 0, 900));
  keys.push_back({"add_extra_token_to_sequence", false});
  const auto without = make(keys);
  EXPECT_NE(core->fingerprint(), without->fingerprint());
  std::vector<std::int32_t> tokens(33);
  std::vector<std::uint8_t> mask(32, 1);
  without->read(0, 0, tokens, mask);
  EXPECT_EQ(mask[31], 0) << "the last target does not count";
  EXPECT_EQ(mask[30], 1);
}

TEST_F(PlansTest, CoreTakesLengthsForWeightsWhereThereAreNone) {
  const auto entries = [&](bool one) {
    std::vector<Key> second{{"path", b_}};
    if (one) {
      second.push_back({"weight", 1.0});
    }
    return std::vector<Key>{{"train", tables_of({{{"path", a_}}, second})},
                            {"split", std::string("90,10,0")},
                            {"sampling", std::string("megatron_core")}};
  };
  EXPECT_NO_THROW(samples(*make(entries(false)), 0, 900));
  EXPECT_NE(message_of<ConfigError>([&] { make(entries(true)); }).find("each needs a weight"), std::string::npos);
  host_.change_facts().batch.train_samples = 5000;
  EXPECT_NE(message_of<ConfigError>([&] { make(entries(false)); }).find("5000 are wanted"), std::string::npos);
}

TEST_F(PlansTest, ListsOfPathsAreSets) {
  write_file(folder_ / "train.txt", "train: 0.4 0:0.9 a, 0.6 0:0.9 b\n");
  write_file(folder_ / "valid.txt", "\"valid_a: 1 0.9:1 a\" \"valid_b: 1 0.9:1 b\"\n");
  host_.change_facts().recipe_dir = folder_.path();
  const auto listed = make({{"train_list", std::string("train.txt")}, {"valid_list", std::string("valid.txt")}});
  ASSERT_EQ(listed->sets().size(), 3U);
  EXPECT_EQ(listed->sets()[0].name, "train");
  EXPECT_EQ(listed->sets()[2].name, "valid_b");
  const auto written = make({{"train", tables_of({{{"path", a_}, {"weight", 0.4}, {"range", std::string("0:0.9")}},
                                                  {{"path", b_}, {"weight", 0.6}, {"range", std::string("0:0.9")}}})},
                             {"valid", tables_of({})}});
  EXPECT_EQ(listed->fingerprint(), written->fingerprint());
  const auto refused = [&](std::vector<Key> keys) { return message_of<Error>([&] { make(keys); }); };
  EXPECT_NE(refused({{"train_list", std::string("train.txt")}, {"path", a_}}).find("keep one"), std::string::npos);
  EXPECT_NE(refused({{"train_list", std::string("valid.txt")}}).find("2 lists"), std::string::npos);
  EXPECT_NE(refused({{"train_list", std::string("lost.txt")}}).find("lost.txt"), std::string::npos);
}

}  // namespace
}  // namespace espalier::data_indexed
