// One model code for every topology: splits over tensor, pipeline and data groups, with and without sequence
// parallelism and with backward in halves, give the float64 truth of the fixtures, and dropout does not depend on who
// computes.
#include "parity/model/rig.hpp"
#include "support/mpi_test.hpp"

namespace espalier::testing_support {
namespace {

struct Topology {
  const char* name;
  int tensor, pipeline, data;
  bool sequence_parallel;
  int world() const { return tensor * pipeline * data; }
};

constexpr Topology kTopologies[] = {
    {"tensor2", 2, 1, 1, false},
    {"tensor2_sequence", 2, 1, 1, true},
    {"pipeline2", 1, 2, 1, false},
    {"data2", 1, 1, 2, false},
    {"tensor4", 4, 1, 1, false},
    {"tensor4_sequence", 4, 1, 1, true},
    {"pipeline4", 1, 4, 1, false},
    {"tensor2_pipeline2", 2, 2, 1, false},
    {"tensor2_sequence_pipeline2", 2, 2, 1, true},
    {"tensor2_sequence_data2", 2, 1, 2, true},
    {"pipeline2_data2", 1, 2, 2, false},
};

class TopologyTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { world_ = make_world_communicator().release(); }
  static void TearDownTestSuite() { delete std::exchange(world_, nullptr); }

  RigOptions options(const Topology& topology) const {
    RigOptions options;
    options.world = world_;
    options.grid.tensor = topology.tensor;
    options.grid.pipeline = topology.pipeline;
    options.grid.data = topology.data;
    options.sequence_parallel = topology.sequence_parallel;
    return options;
  }
  /// Calls body with each topology of this job's size; at least one there must be.
  template <class Body>
  void for_each(Body&& body) const {
    int ran = 0;
    for (const Topology& topology : kTopologies) {
      if (topology.world() != world_->size()) continue;
      SCOPED_TRACE(topology.name);
      body(topology);
      ++ran;
    }
    EXPECT_GT(ran, 0);
  }
  static inline Communicator* world_ = nullptr;
};

TEST_F(TopologyTest, EveryGradientIsTheTruth) {
  for (const std::string model : {"tiny_a", "tiny_b"}) {
    SCOPED_TRACE(model);
    for_each([&](const Topology& topology) { expect_truth(model, run_forward_backward(model, options(topology), 1)); });
  }
}

TEST_F(TopologyTest, HalvesAreTheWholeToTheBit) {
  for_each([&](const Topology& topology) {
    RigOptions split = options(topology);
    split.split = true;
    expect_equal_bits(run_forward_backward("tiny_b", options(topology), 1), run_forward_backward("tiny_b", split, 1));
  });
}

TEST_F(TopologyTest, RecomputationChangesNoBit) {
  for_each([&](const Topology& topology) {
    const Outcome plain = run_forward_backward("tiny_b", options(topology), 1);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      RigOptions again = options(topology);
      again.recompute = recompute;
      expect_equal_bits(plain, run_forward_backward("tiny_b", again, 1));
    }
  });
}

TEST_F(TopologyTest, DropoutDoesNotDependOnWhoComputes) {
  RigOptions alone;
  alone.dropout = 0.25;
  const Outcome one = run_forward_backward("tiny_b", alone, 1);
  for_each([&](const Topology& topology) {
    RigOptions several = options(topology);
    several.dropout = 0.25;
    const Outcome many = run_forward_backward("tiny_b", several, 1);
    EXPECT_NEAR(many.loss, one.loss, 5e-6);
    EXPECT_NEAR(many.norm, one.norm, 1e-5 * one.norm);
  });
}

TEST_F(TopologyTest, ZeroStagesAreEqualToTheBit) {
  for_each([&](const Topology& topology) {
    RigOptions stage0 = options(topology);
    stage0.zero_stage = 0;
    expect_equal_bits(run_forward_backward("tiny_b", options(topology), 1), run_forward_backward("tiny_b", stage0, 1));
  });
}

}  // namespace
}  // namespace espalier::testing_support
