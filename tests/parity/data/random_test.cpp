// numpy's legacy generator against tables made by numpy itself (fixtures rng/).
#include <numeric>

#include "numpy_random.hpp"
#include "parity/data/support.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

const nlohmann::json& table() {
  static const nlohmann::json json = read_json(data_fixture("rng/mt19937.json"));
  return json;
}

std::vector<std::int32_t> counted(std::size_t n) {
  std::vector<std::int32_t> values(n);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(NumpyRandomParity, Words) {
  ASSERT_GE(table()["seeds"].size(), 6U);
  for (const auto& row : table()["seeds"]) {
    NumpyRandom random(row["seed"].get<std::uint32_t>());
    std::vector<std::uint32_t> words(100000);
    for (auto& word : words) {
      word = random.word();
    }
    EXPECT_EQ(std::vector<std::uint32_t>(words.begin(), words.begin() + 16),
              as_vector<std::uint32_t>(row["first_16_words"]));
    EXPECT_EQ(sha256_of<std::uint32_t>(words), row["first_100000_words_sha256_le_uint32"].get<std::string>());
  }
}

TEST(NumpyRandomParity, Shuffles) {
  for (const auto& row : table()["seeds"]) {
    for (const auto& shuffle : row["shuffles"]) {
      NumpyRandom random(row["seed"].get<std::uint32_t>());
      auto values = counted(shuffle["n"]);
      random.shuffle(std::span(values));
      if (shuffle.contains("result")) {
        EXPECT_EQ(values, as_vector<std::int32_t>(shuffle["result"])) << "n = " << shuffle["n"];
      } else {
        EXPECT_EQ(sha256_of<std::int32_t>(values), shuffle["sha256_le_int32"].get<std::string>())
            << "n = " << shuffle["n"];
      }
      EXPECT_EQ(random.word(), shuffle["next_word_after"].get<std::uint32_t>()) << "n = " << shuffle["n"];
    }
  }
}

TEST(NumpyRandomParity, BoundedOver32Bits) {
  for (const auto& row : table()["seeds"]) {
    const auto& draws = row["bounded_over_32_bits"];
    NumpyRandom random(row["seed"].get<std::uint32_t>());
    for (const auto& value : draws["values"]) {
      EXPECT_EQ(random.bounded(draws["inclusive_maximum"].get<std::uint64_t>()), value.get<std::uint64_t>());
    }
    EXPECT_EQ(random.word(), draws["next_word_after"].get<std::uint32_t>());
  }
}

}  // namespace
}  // namespace espalier::data_indexed
