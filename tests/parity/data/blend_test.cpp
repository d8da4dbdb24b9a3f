// Weights, requests and order of blends against bigscience (fixtures blend_bigscience/).
#include "blend.hpp"

#include "npy.hpp"
#include "parity/data/support.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

const std::string kFolder = "blend_bigscience/";

std::vector<double> doubles_of(const nlohmann::json& texts) {
  std::vector<double> result;
  for (const auto& text : texts) {
    result.push_back(std::strtod(text.get<std::string>().c_str(), nullptr));
  }
  return result;
}

std::vector<std::uint8_t> parts_of(const BlendOrder& order) {
  std::vector<std::uint8_t> result;
  for (std::int64_t i = 0; i < order.positions(); ++i) {
    result.push_back(static_cast<std::uint8_t>(order.part(i)));
  }
  return result;
}

std::vector<std::int64_t> samples_of(const BlendOrder& order) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < order.positions(); ++i) {
    result.push_back(order.sample(i));
  }
  return result;
}

/// The array as the peer saved it, header included.
template <typename T>
std::string npy_of(const std::vector<T>& values) {
  const std::int64_t shape[] = {static_cast<std::int64_t>(values.size())};
  return npy_header(npy_descr<T>(), shape) +
         std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

TEST(BlendParity, WeightsRequestsAndOrder) {
  const auto items = read_json(data_fixture(kFolder + "blends.json"))["items"];
  ASSERT_GE(items.size(), 17U);
  for (const auto& item : items) {
    SCOPED_TRACE(item["name"].get<std::string>());
    const auto twice = doubles_of(item["normalised_twice_hex"]);
    // The blends named zero_* show what the peer does with a weight of 0, which is refused here; the order is still the
    // same rule.
    const bool zero = item["name"].get<std::string>().starts_with("zero_");
    if (!zero) {
      const auto once = normalised_weights(doubles_of(item["weights_given"]));
      EXPECT_EQ(once, doubles_of(item["normalised_once_hex"]));
      EXPECT_EQ(renormalised_weights(once), twice);
      for (std::size_t t = 0; t < item["samples_requested_for"].size(); ++t) {
        for (std::size_t s = 0; s < 3; ++s) {
          const auto asked = samples_asked(once, item["samples_requested_for"][t][s].get<std::int64_t>());
          for (std::size_t part = 0; part < once.size(); ++part) {
            EXPECT_EQ(asked[part], item["samples_requested"][t][part][s].get<std::int64_t>());
          }
        }
      }
    } else {
      EXPECT_ANY_THROW(normalised_weights(doubles_of(item["weights_given"])));
    }
    const BlendOrder order(twice, item["size"].get<std::int64_t>());
    const auto parts = parts_of(order);
    const auto samples = samples_of(order);
    EXPECT_EQ(sha256_of<std::uint8_t>(parts), item["dataset_index"]["sha256"].get<std::string>());
    EXPECT_EQ(sha256_of<std::int64_t>(samples), item["dataset_sample_index"]["sha256"].get<std::string>());
    EXPECT_EQ(order.counts(), as_vector<std::int64_t>(item["counts"]));
    if (item["dataset_index"]["file"].is_string()) {
      EXPECT_EQ(npy_of(parts), read_file(data_fixture(kFolder + item["dataset_index"]["file"].get<std::string>())));
    }
    if (item["dataset_sample_index"]["file"].is_string()) {
      EXPECT_EQ(npy_of(samples),
                read_file(data_fixture(kFolder + item["dataset_sample_index"]["file"].get<std::string>())));
    }
  }
}

TEST(BlendParity, TheWholeOrderOfThreeCorpora) {
  // The peer's order runs on for the sum of the parts' lengths; training reads the first `samples_wanted` of it.
  const auto truth = read_json(data_fixture(kFolder + "end_to_end.json"));
  const auto& prefix = truth["data_prefix"];
  std::vector<double> weights;
  for (std::size_t k = 0; k < prefix.size(); k += 2) {
    weights.push_back(std::strtod(prefix[k].get<std::string>().c_str(), nullptr));
  }
  const auto twice = renormalised_weights(normalised_weights(weights));
  for (const std::string name : {"train", "valid", "test"}) {
    SCOPED_TRACE(name);
    const auto& set = truth["sets"][name];
    const BlendOrder order(twice, set["length"].get<std::int64_t>());
    EXPECT_EQ(npy_of(parts_of(order)), read_file(data_fixture(kFolder + set["dataset_index"].get<std::string>())));
    EXPECT_EQ(npy_of(samples_of(order)),
              read_file(data_fixture(kFolder + set["dataset_sample_index"].get<std::string>())));
  }
}

TEST(BlendParity, ProductsAreRoundedBeforeTheDifference) {
  const auto json = read_json(data_fixture(kFolder + "fma_sensitive.json"));
  ASSERT_GE(json["examples"].size(), 3U);
  for (const auto& example : json["examples"]) {
    const BlendOrder order(doubles_of(example["weights_hex"]), example["size"].get<std::int64_t>());
    EXPECT_EQ(sha256_of<std::uint8_t>(parts_of(order)), example["right_sha256"].get<std::string>());
  }
}

}  // namespace
}  // namespace espalier::data_indexed
