#include "model/layout.hpp"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace espalier::app {
namespace {

using Runs = std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>;

Runs runs(const LocalParameter& local, std::int64_t begin, std::int64_t end) {
  Runs found;
  for_each_run(local, begin, end, [&](const Run& run) { found.emplace_back(run.local, run.logical, run.length); });
  return found;
}

LocalParameter local(Shape logical, Placement place) {
  LocalParameter parameter;
  parameter.parameter.shape = logical;
  parameter.placement = place;
  return parameter;
}

TEST(Layout, WholeIsOneRun) {
  const auto whole = local({4, 3}, {Copies::whole, -1, 0, 4, 4, {4, 3}});
  EXPECT_EQ(runs(whole, 2, 11), (Runs{{2, 2, 9}}));
  EXPECT_EQ(runs(whole, 5, 5), Runs{});
}

TEST(Layout, RowsShiftAndPadAtTheEnd) {
  // Rows 4 … 7 of a matrix of 6 rows: two are real.
  const auto rows = local({6, 5}, {Copies::split, 0, 4, 8, 6, {4, 5}});
  EXPECT_EQ(runs(rows, 0, 20), (Runs{{0, 20, 10}, {10, -1, 10}}));
  EXPECT_EQ(runs(rows, 3, 8), (Runs{{3, 23, 5}}));
  EXPECT_EQ(runs(rows, 12, 14), (Runs{{12, -1, 2}}));
}

TEST(Layout, ARankOfPaddingOnly) {
  const auto padding = local({6, 5}, {Copies::split, 0, 8, 12, 8, {4, 5}});
  EXPECT_EQ(runs(padding, 0, 20), (Runs{{0, -1, 20}}));
}

TEST(Layout, VectorsSplitByElement) {
  const auto vector = local({7}, {Copies::split, 0, 4, 8, 7, {4}});
  EXPECT_EQ(runs(vector, 0, 4), (Runs{{0, 4, 3}, {3, -1, 1}}));
}

TEST(Layout, ColumnsAreARunARow) {
  const auto columns = local({3, 8}, {Copies::split, 1, 4, 8, 8, {3, 4}});
  EXPECT_EQ(runs(columns, 0, 12), (Runs{{0, 4, 4}, {4, 12, 4}, {8, 20, 4}}));
  EXPECT_EQ(runs(columns, 2, 9), (Runs{{2, 6, 2}, {4, 12, 4}, {8, 20, 1}}));
}

TEST(Layout, PaddedColumns) {
  const auto columns = local({2, 7}, {Copies::split, 1, 4, 8, 7, {2, 4}});
  EXPECT_EQ(runs(columns, 0, 8), (Runs{{0, 4, 3}, {3, -1, 1}, {4, 11, 3}, {7, -1, 1}}));
}

}  // namespace
}  // namespace espalier::app
