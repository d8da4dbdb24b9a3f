// Several ranks with CUDA graphs: what lies between two communications repeats, and the bits are those without.
#include "cuda_emulation/runs/graphs.hpp"

namespace espalier::testing_support {
namespace {

// Pieces of work in graphs, at least: more than evaluations have, so that some of the steps' are among them. Stretches
// between two communications of less than four pieces make no graphs.
void expect_ranks(const std::string& name, int pieces, const Change& change) {
  expect_same_with_graphs(name, 20, 2, pieces, change);
}

TEST(EmulatedRanksWithGraphs, Zero2) { expect_ranks("cuda_graphs_zero2", 120, zero(2)); }
TEST(EmulatedRanksWithGraphs, Zero3) { expect_ranks("cuda_graphs_zero3", 90, zero(3)); }
TEST(EmulatedRanksWithGraphs, Tensor) { expect_ranks("cuda_graphs_tensor", 150, both(zero(1), split("tensor"))); }
TEST(EmulatedRanksWithGraphs, Pipeline) { expect_ranks("cuda_graphs_pipeline", 120, both(zero(1), split("pipeline"))); }

}  // namespace
}  // namespace espalier::testing_support
