// One BF16 model, many layouts: after 50 steps they are as near to each other as rounding lets them.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/mpi_test.hpp"
#include "support/spread.hpp"

namespace espalier::testing_support {
namespace {

// One seed's providers may meet by chance: means over several.
TEST(Spread, AfterFiftySteps) {
  ESPALIER_REQUIRE_RANKS(8);
  const auto world = make_world_communicator();
  double layouts = 0, rounded = 0, providers = 0, precisions = 0;
  for (const int seed : {1, 2, 3, 4}) {
    SpreadModel model;
    model.layers = 4;
    model.hidden = 32;
    model.seed = seed;
    const SpreadResult result = measure_spread(*world, spread_layouts(), model);
    EXPECT_LT(result.layouts_apart.before, 5e-4) << "seed " << seed;
    EXPECT_LT(result.layouts[0].after, result.layouts[0].before - 1) << "it learns";
    layouts += result.layouts_apart.after / 4;
    rounded += result.rounded_parts.after / 4;
    providers += result.providers.after / 4;
    precisions += result.precisions.after / 4;
  }
  if (world->rank() == 0) {
    std::printf("layouts %.2e, BF16 parts %.2e, providers %.2e, BF16 and FP32 %.2e\n", layouts, rounded, providers,
                precisions);
  }
  EXPECT_LE(layouts, 2 * providers);
  // Parts that are rounded before they are added: another draw of BF16's own error.
  EXPECT_LE(rounded, 4 * precisions);
  EXPECT_LT(rounded, 1e-3) << "a hundredth of what BLOOM's run had";
}

}  // namespace
}  // namespace espalier::testing_support
