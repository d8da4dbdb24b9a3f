// One model code for every topology: splits over tensor, pipeline and data groups, with and without sequence
// parallelism and with backward in halves, give the float64 truth of the fixtures, and dropout does not depend on who
// computes.
#include <algorithm>

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

  ModelRigOptions options(const Topology& topology) const {
    ModelRigOptions options;
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
  for (const std::string model : {"tiny_a", "tiny_b", "tiny_gpt2"}) {
    SCOPED_TRACE(model);
    for_each([&](const Topology& topology) {
      if (model == "tiny_gpt2" && topology.tensor > 1) return;  // of five heads; tests/ranks/matrix splits another
      expect_truth(model, run_forward_backward(model, options(topology), 1));
    });
  }
}

TEST_F(TopologyTest, HalvesAreTheWholeToTheBit) {
  for_each([&](const Topology& topology) {
    ModelRigOptions split = options(topology);
    split.split = true;
    expect_equal_bits(run_forward_backward("tiny_b", options(topology), 1), run_forward_backward("tiny_b", split, 1));
  });
}

TEST_F(TopologyTest, RecomputationChangesNoBit) {
  for_each([&](const Topology& topology) {
    const Outcome plain = run_forward_backward("tiny_b", options(topology), 1);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      ModelRigOptions again = options(topology);
      again.recompute = recompute;
      expect_equal_bits(plain, run_forward_backward("tiny_b", again, 1));
    }
  });
}

TEST_F(TopologyTest, DropoutDoesNotDependOnWhoComputes) {
  ModelRigOptions alone;
  alone.dropout = 0.25;
  const Outcome one = run_forward_backward("tiny_b", alone, 1);
  for_each([&](const Topology& topology) {
    ModelRigOptions several = options(topology);
    several.dropout = 0.25;
    const Outcome many = run_forward_backward("tiny_b", several, 1);
    EXPECT_NEAR(many.loss, one.loss, 5e-6);
    EXPECT_NEAR(many.norm, one.norm, 1e-5 * one.norm);
  });
}

TEST_F(TopologyTest, EvaluationCountsEveryTokenOnce) {
  const SafetensorsFile fixture(model_fixture("tiny_b/fwd_bwd.safetensors"));
  const FileTensor& tokens = fixture.at("input_ids");
  const double loss = read_json_fixture("tiny_b/fwd_bwd.json")["loss"].get<double>();
  for_each([&](const Topology& topology) {
    const std::int64_t share = 2 / topology.data;
    const Walk walk{Mode::forward_only, 1, tokens.shape.back() - 1, static_cast<int>(share)};
    Rig rig("tiny_b/hf", options(topology), {walk});
    TokenBatches batches(tokens, 1, share * rig.facts().grid.data_rank, share);
    const EvalResult result = rig.executor().evaluate(walk, batches);
    EXPECT_EQ(result.tokens, 2 * batches.seq());
    EXPECT_NEAR(result.loss_sum / static_cast<double>(result.tokens), loss, 5e-6);
  });
}

TEST_F(TopologyTest, TensorRanksDecodeTheSameTokens) {
  const nlohmann::json generation = read_json_fixture("tiny_b/generate.json")["generations"][2];
  Topology topology{"tensor", world_->size(), 1, 1, false};
  const Walk walk{Mode::forward_only, 1, 8, 1};
  Rig rig("tiny_b/hf", options(topology), {walk});
  DecoderSetup setup = rig.decoder_setup();
  Decoder decoder(setup, 1, 64, 7);
  std::vector<float> logits(static_cast<std::size_t>(decoder.columns()));
  decoder.extend(0, generation["prompt"].get<std::vector<std::int32_t>>(), logits);
  for (const auto& expected : generation["output"]) {
    const auto token = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    ASSERT_EQ(token, expected.get<std::int32_t>());
    decoder.extend(0, {&token, 1}, logits);
  }
}

TEST_F(TopologyTest, ZeroStagesAreEqualToTheBit) {
  for_each([&](const Topology& topology) {
    ModelRigOptions stage0 = options(topology);
    stage0.zero_stage = 0;
    expect_equal_bits(run_forward_backward("tiny_b", options(topology), 1), run_forward_backward("tiny_b", stage0, 1));
  });
}

}  // namespace
}  // namespace espalier::testing_support
