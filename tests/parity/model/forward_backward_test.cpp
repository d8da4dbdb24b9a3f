// Logits, loss and every gradient against the float64 truth of tests/fixtures/model, with the tolerances its README
// advises.
#include <tuple>

#include "parity/model/rig.hpp"

namespace espalier::testing_support {
namespace {

constexpr auto run = run_forward_backward;

class ForwardBackward : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }
  ModelRigOptions options() const {
    ModelRigOptions options;
    options.provider = std::get<1>(GetParam());
    return options;
  }
};

TEST_P(ForwardBackward, IsTheTruth) {
  const Outcome outcome = run(model(), options(), 2);
  EXPECT_FALSE(outcome.logits.empty());
  expect_truth(model(), outcome);
}

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
  ModelRigOptions split = options();
  split.split = true;
  expect_equal_bits(run(model(), options(), 1), run(model(), split, 1));
}

TEST_P(ForwardBackward, RecomputationChangesNoBit) {
  const Outcome plain = run(model(), options(), 1);
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    for (const bool halves : {false, true}) {
      ModelRigOptions other = options();
      other.recompute = recompute;
      other.split = halves;
      expect_equal_bits(plain, run(model(), other, 1));
    }
  }
}

TEST_P(ForwardBackward, DropoutIsTheSameWhateverIsComputedAgain) {
  ModelRigOptions dropping = options();
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
                         ::testing::Combine(::testing::Values("tiny_a", "tiny_b", "tiny_gpt2"),
                                            ::testing::ValuesIn(providers())),
                         name_of);

}  // namespace
}  // namespace espalier::testing_support
