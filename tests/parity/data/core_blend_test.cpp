// Weights, targets and order of blends as Megatron-LM core makes them (fixtures blend_megatron_core/).
#include "blend.hpp"
#include "espalier/error.hpp"
#include "npy.hpp"
#include "parity/data/support.hpp"
#include "sample_set.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

const std::string kFolder = "blend_megatron_core/";

std::vector<std::int16_t> parts_of(const BlendOrder& order) {
  std::vector<std::int16_t> result;
  for (std::int64_t i = 0; i < order.positions(); ++i) result.push_back(static_cast<std::int16_t>(order.part(i)));
  return result;
}

std::vector<std::int64_t> samples_of(const BlendOrder& order) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < order.positions(); ++i) result.push_back(order.sample(i));
  return result;
}

std::string file_of(const std::vector<std::int16_t>& values) {
  const std::int64_t shape[] = {static_cast<std::int64_t>(values.size())};
  return npy_header("<i2", shape) + std::string(reinterpret_cast<const char*>(values.data()), values.size() * 2);
}

TEST(CoreBlendParity, WeightsTargetsAndOrder) {
  const auto items = read_json(data_fixture(kFolder + "blends.json"))["items"];
  ASSERT_EQ(items.size(), 6U);
  for (const auto& item : items) {
    SCOPED_TRACE(item["name"].get<std::string>());
    const auto weights = core_weights(as_vector<double>(item["weights_given"]));
    for (std::size_t k = 0; k < weights.size(); ++k) {
      EXPECT_EQ(weights[k], std::strtod(item["normalised_hex"][k].get<std::string>().c_str(), nullptr));
    }
    for (std::size_t t = 0; t < item["samples_requested_for"].size(); ++t) {
      for (std::size_t s = 0; s < 3; ++s) {
        const auto targets = core_targets(weights, item["samples_requested_for"][t][s].get<std::int64_t>());
        const auto built = core_requests(targets);
        std::int64_t sum = 0;
        for (std::size_t k = 0; k < weights.size(); ++k) {
          EXPECT_EQ(targets[k], item["target"][t][k][s].get<std::int64_t>());
          EXPECT_EQ(built[k], item["built"][t][k][s].get<std::int64_t>());
          sum += targets[k];
        }
        EXPECT_EQ(sum, item["top_level_size"][t][s].get<std::int64_t>());
      }
    }
    const BlendOrder order(weights, item["size"].get<std::int64_t>());
    EXPECT_EQ(file_of(parts_of(order)),
              read_file(data_fixture(kFolder + item["dataset_index"]["file"].get<std::string>())));
    EXPECT_EQ(sha256_of<std::int64_t>(samples_of(order)), item["dataset_sample_index_sha256"].get<std::string>());
    EXPECT_EQ(order.counts(), as_vector<std::int64_t>(item["counts"]));
  }
}

TEST(CoreBlendParity, Exhaustive) {
  const auto items = read_json(data_fixture(kFolder + "blends.json"))["exhaustive"];
  ASSERT_EQ(items.size(), 4U);
  for (const auto& item : items) {
    SCOPED_TRACE(item["name"].get<std::string>());
    const auto sizes = as_vector<std::int64_t>(item["sizes"]);
    const BlendOrder order = BlendOrder::exhaustive(sizes);
    EXPECT_EQ(file_of(parts_of(order)), read_file(data_fixture(kFolder + item["dataset_index"].get<std::string>())));
    EXPECT_EQ(sha256_of<std::int64_t>(samples_of(order)), item["dataset_sample_index_sha256"].get<std::string>());
    EXPECT_EQ(order.counts(), sizes);
  }
}

/// Tokens and labels of every sample of a set, hashed as the fixtures do.
std::string hash_of(const BlendedSet& set, std::int64_t seq_length) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(seq_length + 1));
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < set.samples(); ++i) {
    const auto at = set.locate(i);
    at.part->reader->read(at.sample, tokens);
    all.insert(all.end(), tokens.begin(), tokens.end() - 1);
    all.insert(all.end(), tokens.begin() + 1, tokens.end());
  }
  return sha256_of<std::int64_t>(all);
}

TEST(CoreBlendParity, ThreeCorporaEndToEnd) {
  const auto cases = read_json(data_fixture(kFolder + "end_to_end.json"));
  ASSERT_EQ(cases.size(), 3U);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const auto& item = cases[c];
    const TemporaryFolder folder;
    std::vector<IndexedFile> files;
    std::vector<std::array<SequenceRange, 3>> cuts;
    SetOptions options{"", Split::train, {}, !item["weights"].is_null()};
    for (std::size_t k = 0; k < item["paths"].size(); ++k) {
      const std::string prefix = copy_pair(item["paths"][k].get<std::string>(), folder);
      files.push_back(IndexedFile::open(prefix));
      options.parts.push_back({prefix, options.weighted ? item["weights"][k].get<double>() : 1.0, {}});
      cuts.push_back(
          split_ranges(item["split_string"].get<std::string>(), files[k].sequences(), Sampling::megatron_core));
    }
    DataOptions all{};
    all.rules.sampling = Sampling::megatron_core;
    const std::pair<const char*, Split> sets[] = {{"train", Split::train}, {"valid", Split::valid}};
    for (std::size_t s = 0; s < 2; ++s) {
      SCOPED_TRACE(std::to_string(c) + " " + sets[s].first);
      const auto& expected = item["sets"][sets[s].first];
      options.name = sets[s].first;
      options.split = sets[s].second;
      const auto& wanted = item["num_samples"][s];
      BlendedSet::Request request{
          {}, {}, wanted.is_null() ? 0 : wanted.get<std::int64_t>(), item["seq_length"], item["seed"]};
      for (std::size_t k = 0; k < files.size(); ++k) {
        request.files.push_back(&files[k]);
        request.ranges.push_back(cuts[k][s]);
      }
      BlendedSet set(options, all, request);
      for (const SetPart& part : set.parts()) store_index(part.request, {{}, false});
      set.map(0);
      EXPECT_EQ(set.samples(), expected["length"].get<std::int64_t>());
      for (std::size_t k = 0; k < files.size(); ++k) {
        const auto& asked = expected["dataset_num_samples"][k];
        EXPECT_EQ(set.parts()[k].request.samples_wanted, asked.is_null() ? 0 : asked.get<std::int64_t>());
        EXPECT_EQ(set.parts()[k].reader->samples(), expected["dataset_lengths"][k].get<std::int64_t>());
      }
      std::vector<std::int16_t> order;
      for (std::int64_t i = 0; i < set.samples(); ++i) {
        order.push_back(static_cast<std::int16_t>(set.locate(i).part - set.parts().data()));
      }
      EXPECT_EQ(file_of(order), read_file(data_fixture(kFolder + expected["dataset_index"].get<std::string>())));
      EXPECT_EQ(hash_of(set, item["seq_length"]), expected["all_tokens_labels_sha256"].get<std::string>());
    }
  }
}

}  // namespace
}  // namespace espalier::data_indexed
