// Logits, loss and every gradient against the float64 truth of tests/fixtures/model, with the tolerances its README
// advises.
#include <tuple>

#include "parity/model/rig.hpp"

namespace espalier::testing_support {
namespace {

struct Outcome {
  double loss = 0;
  double norm = 0;
  std::vector<float> logits;
  std::map<std::string, std::vector<float>> gradients;
};

Outcome run(const std::string& model, RigOptions options, std::int64_t samples_per_batch) {
  const SafetensorsFile fixture(model_fixture(model + "/fwd_bwd.safetensors"));
  TokenBatches batches(fixture.at("input_ids"), samples_per_batch);
  const int count = static_cast<int>(2 / samples_per_batch);
  const Walk walk{Mode::train, samples_per_batch, batches.seq(), count};
  Rig rig(model + "/hf", options, {walk});
  LogitsCopy copy(rig.facts().model.vocab);
  copy.tokens_per_batch = samples_per_batch * batches.seq();
  rig.executor().watch_logits(&copy);
  const Verdict verdict = rig.executor().train_step(walk, batches, {}, rig.optimizer());
  EXPECT_TRUE(verdict.finite);
  EXPECT_EQ(verdict.tokens, 2 * batches.seq());
  Outcome outcome{verdict.loss_sum / static_cast<double>(verdict.tokens), verdict.norm, copy.values, {}};
  for (const Parameter& parameter : rig.parameters().all()) {
    outcome.gradients[std::string(parameter.name)] = rig.state(parameter, GradientProbe::kState);
  }
  return outcome;
}

void expect_equal_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.norm, b.norm);
  EXPECT_EQ(a.logits, b.logits);
  for (const auto& [name, gradient] : a.gradients) EXPECT_EQ(gradient, b.gradients.at(name)) << name;
}

void expect_truth(const std::string& model, const Outcome& outcome) {
  const SafetensorsFile fixture(model_fixture(model + "/fwd_bwd.safetensors"));
  const nlohmann::json facts = read_json_fixture(model + "/fwd_bwd.json");
  EXPECT_LE(largest_difference(outcome.logits, read_all(fixture.at("logits"))), 2e-5);
  EXPECT_NEAR(outcome.loss, facts["loss"].get<double>(), 5e-6);
  const double norm = facts["grad_norm"].get<double>();
  EXPECT_NEAR(outcome.norm, norm, 1e-5 * norm);
  std::size_t compared = 0;
  for (const FileTensor& tensor : fixture.tensors()) {
    const std::string prefix = "grad.transformer.";
    if (tensor.name.compare(0, prefix.size(), prefix) != 0) continue;
    const double rms = facts["deviation_of_hf_fp32_from_float64"][tensor.name]["ref_rms"].get<double>();
    const auto& gradient = outcome.gradients.at(tensor.name.substr(prefix.size()));
    EXPECT_LE(largest_difference(gradient, read_all(tensor)), 5e-5 * rms + 1e-8) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, outcome.gradients.size());
}

class ForwardBackward : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }
  RigOptions options() const {
    RigOptions options;
    options.provider = std::get<1>(GetParam());
    return options;
  }
};

TEST_P(ForwardBackward, IsTheTruth) { expect_truth(model(), run(model(), options(), 2)); }

TEST_P(ForwardBackward, TwoMicroBatchesAreOneBatchOfTwo) {
  const Outcome two = run(model(), options(), 1);
  expect_truth(model(), two);
  const Outcome one = run(model(), options(), 2);
  EXPECT_NEAR(two.loss, one.loss, 1e-6);
  EXPECT_NEAR(two.norm, one.norm, 1e-6 * one.norm);
  for (const auto& [name, gradient] : one.gradients) {
    EXPECT_LE(largest_difference(gradient, two.gradients.at(name)), 1e-6) << name;
  }
}

TEST_P(ForwardBackward, HalvesAreTheWholeToTheBit) {
  RigOptions split = options();
  split.split = true;
  expect_equal_bits(run(model(), options(), 1), run(model(), split, 1));
}

TEST_P(ForwardBackward, RecomputationChangesNoBit) {
  const Outcome plain = run(model(), options(), 1);
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    for (const bool halves : {false, true}) {
      RigOptions other = options();
      other.recompute = recompute;
      other.split = halves;
      expect_equal_bits(plain, run(model(), other, 1));
    }
  }
}

TEST_P(ForwardBackward, DropoutIsTheSameWhateverIsComputedAgain) {
  RigOptions dropping = options();
  dropping.dropout = 0.25;
  const Outcome plain = run(model(), dropping, 1);
  const Outcome none = run(model(), options(), 1);
  EXPECT_GT(std::fabs(plain.loss - none.loss), 1e-4);
  dropping.split = true;
  expect_equal_bits(plain, run(model(), dropping, 1));
  dropping.recompute = Recompute::full;
  expect_equal_bits(plain, run(model(), dropping, 1));
  dropping.recompute = Recompute::selective;
  expect_equal_bits(plain, run(model(), dropping, 1));
  // The mask follows the sample, not the micro-batch it comes in.
  dropping = options();
  dropping.dropout = 0.25;
  const Outcome together = run(model(), dropping, 2);
  EXPECT_NEAR(plain.loss, together.loss, 1e-6);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, std::string>>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(Models, ForwardBackward,
                         ::testing::Combine(::testing::Values("tiny_a", "tiny_b"), ::testing::ValuesIn(providers())),
                         name_of);

}  // namespace
}  // namespace espalier::testing_support
