// One BF16 model, many layouts, one loss: before the first step.
#include <gtest/gtest.h>

#include <cmath>

#include "support/mpi_test.hpp"
#include "support/spread.hpp"

namespace espalier::testing_support {
namespace {

TEST(Spread, BeforeTheFirstStep) {
  ESPALIER_REQUIRE_RANKS(8);
  const auto world = make_world_communicator();
  SpreadModel model;
  model.layers = 4;
  model.hidden = 16;
  model.micro = 64;
  model.steps = 0;
  const SpreadResult result = measure_spread(*world, spread_layouts(), model);
  EXPECT_LT(result.layouts_apart.before, 5e-4);
  EXPECT_LT(result.rounded_parts.before, 5e-4);
  EXPECT_LT(result.rounded_parts.before, 1e-2 * std::abs(result.layouts[0].before - std::log(260.0)))
      << "nothing was computed";
}

}  // namespace
}  // namespace espalier::testing_support
