// Borders of splits and ranges against those of bigscience (fixtures splits/).
#include "splits.hpp"

#include <set>

#include "espalier/error.hpp"
#include "parity/data/support.hpp"

namespace espalier::data_indexed {
namespace {

using namespace espalier::testing;

TEST(SplitsParity, Borders) {
  const auto json = read_json(data_fixture("splits/bigscience_splits.json"));
  ASSERT_GE(json["rows"].size(), 200U);
  std::set<std::string> refused;
  for (const auto& row : json["rows"]) {
    const auto text = row[0].get<std::string>();
    const auto sequences = row[1].get<std::int64_t>();
    if (text == "1,2,3,4") {  // bigscience cuts the fourth share off without a word
      EXPECT_THROW(parse_split(text), ConfigError);
      continue;
    }
    const auto expected = row[2].get<std::array<std::int64_t, 4>>();
    EXPECT_EQ(split_borders(parse_split(text), sequences), expected) << text << " on " << sequences;
    if (expected[1] < 0) {
      EXPECT_THROW(split_ranges(text, sequences), ConfigError);
      refused.insert(text);
    } else {
      const auto ranges = split_ranges(text, sequences);
      EXPECT_EQ(ranges[1], (SequenceRange{expected[1], expected[2]}));
    }
  }
  EXPECT_EQ(refused, std::set<std::string>{"0,3,7"});
}

TEST(SplitsParity, BordersOfCore) {
  const auto rows = read_json(data_fixture("splits/megatron_core_splits.json"));
  ASSERT_GE(rows.size(), 16U);
  for (const auto& row : rows) {
    const auto text = row["split_string"].get<std::string>();
    for (const auto& [count, borders] : row["borders"].items()) {
      const auto ranges = split_ranges(text, std::stoll(count), Sampling::megatron_core);
      for (std::size_t k = 0; k < 3; ++k) {
        SCOPED_TRACE(text + " on " + count);
        if (borders[k].is_null()) {
          EXPECT_EQ(ranges[k].count(), 0);
          EXPECT_EQ(parse_split(text)[k], 0.0);
        } else {
          EXPECT_EQ(ranges[k], (SequenceRange{borders[k][0], borders[k][1]}));
        }
      }
    }
  }
}

TEST(SplitsParity, Ranges) {
  const auto json = read_json(data_fixture("splits/bigscience_splits.json"));
  ASSERT_GE(json["range_rows"].size(), 50U);
  for (const auto& row : json["range_rows"]) {
    if (row[0] == "0.8:0.2") {  // bigscience takes it for an empty range
      EXPECT_THROW(parse_range("0.8:0.2"), ConfigError);
      continue;
    }
    const auto range = range_of(parse_range(row[0].get<std::string>()), row[1].get<std::int64_t>());
    EXPECT_EQ(range, (SequenceRange{row[2][0], row[2][1]})) << row;
  }
}

}  // namespace
}  // namespace espalier::data_indexed
