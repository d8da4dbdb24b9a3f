// The bytes of a step are those of the formulas, on every rank.
#include <gtest/gtest.h>

#include "support/mpi_test.hpp"
#include "support/traffic_run.hpp"

namespace espalier::testing_support {
namespace {

TEST(Bytes, AreThoseOfTheFormulas) {
  ESPALIER_REQUIRE_RANKS(8);
  const auto world = make_world_communicator();
  std::vector<TrafficCase> cases;
  for (const TrafficCase& at : traffic_cases()) {  // half of what bench/bytes has
    if ((at.recompute == app::Recompute::full) == (at.micro_batches == 5)) cases.push_back(at);
  }
  std::vector<int> ranks;
  for (const TrafficCase& at : cases) ranks.push_back(at.ranks());
  run_packed(*world, ranks, [&](Communicator& group, std::size_t i) {
    for (const TrafficLine& line : count_step(group, cases[i])) {
      EXPECT_EQ(line.counted, line.formula) << cases[i] << ": " << line.what << ", rank " << group.rank();
    }
  });
}

}  // namespace
}  // namespace espalier::testing_support
