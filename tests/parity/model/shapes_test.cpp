// The model's switches, for which there is no outside truth: learned positions, no embedding norm, an untied head, a
// masked vocabulary and masked targets. The gradient of every parameter is held against differences of the loss along
// it.
#include <algorithm>
#include <tuple>

#include "espalier/random.hpp"
#include "parity/model/rig.hpp"

namespace espalier::testing_support {
namespace {

struct Switches {
  const char* name;
  bool learned_positions, embedding_norm, tied_head;
};

class Shapes : public ::testing::TestWithParam<std::tuple<Switches, std::string>> {
 protected:
  static constexpr std::int64_t kSeq = 6, kSamples = 3, kIds = 29;

  ModelShape shape() const {
    const Switches& switches = std::get<0>(GetParam());
    ModelShape shape;
    shape.layers = 2;
    shape.hidden = 20;
    shape.heads = 5;
    shape.ffn = 36;  // not four times as wide
    shape.vocab = 33;
    shape.tokenizer_vocab = kIds;
    shape.seq_length = kSeq;
    shape.positions = switches.learned_positions ? kSeq + 2 : 0;
    shape.embedding_norm = switches.embedding_norm;
    shape.tied_head = switches.tied_head;
    return shape;
  }
  ModelRigOptions options() const {
    ModelRigOptions options;
    options.provider = std::get<1>(GetParam());
    return options;
  }
  static TokenBatches batches() {
    std::vector<std::int64_t> tokens;
    for (std::uint32_t i = 0; i < kSamples * (kSeq + 1); ++i) {
      tokens.push_back(philox({1, 2}, {i, 0, 0, 0})[0] % kIds);
    }
    TokenBatches batches(tokens, kSeq + 1, 1);
    batches.mask(4);
    batches.mask(11);
    return batches;
  }
};

/// Adds `scale` times a vector to a parameter (FP32: the master weights are the working weights).
void move(Rig& rig, const Parameter& parameter, const std::vector<float>& along, double scale) {
  for (const StatePiece& piece : rig.data().state()) {
    if (piece.state != "master" || piece.parameter != parameter.index) continue;
    float* values = piece.data.as<float>();
    for (std::size_t i = 0; i < along.size(); ++i) values[i] += static_cast<float>(scale * along[i]);
  }
  rig.data().refresh(rig.backend().device().lane(Lane::compute));
}

TEST_P(Shapes, GradientsAreSlopesOfTheLoss) {
  const Walk train{Mode::train, 1, kSeq, kSamples}, forward{Mode::forward_only, 1, kSeq, kSamples};
  Rig rig(shape(), options(), {train, forward});
  TokenBatches source = batches();
  const Verdict verdict = rig.executor().train_step(train, source, {}, rig.optimizer());
  EXPECT_EQ(verdict.tokens, kSamples * kSeq - 2);
  const auto loss = [&] {
    const EvalResult result = rig.executor().evaluate(forward, source);
    return result.loss_sum / static_cast<double>(result.tokens);
  };
  EXPECT_NEAR(loss(), verdict.loss_sum / static_cast<double>(verdict.tokens), 1e-6);
  double squares = 0;
  for (const Parameter& parameter : rig.parameters().all()) {
    const std::vector<float> gradient = rig.state(parameter, GradientProbe::kState);
    double square = 0;
    for (const float g : gradient) square += static_cast<double>(g) * g;
    squares += square;
    // A step along the gradient that changes the loss by about 4e-3 each way: far above FP32's rounding, small against
    // curvature.
    const double length = 4e-3 / square;
    move(rig, parameter, gradient, length);
    const double above = loss();
    move(rig, parameter, gradient, -2 * length);
    const double below = loss();
    move(rig, parameter, gradient, length);
    EXPECT_NEAR((above - below) / (2 * length * square), 1.0, 0.02) << parameter.name;
  }
  EXPECT_NEAR(verdict.norm, std::sqrt(squares), 1e-5 * verdict.norm);
}

TEST_P(Shapes, RowsAboveTheTokenizerGetNoGradient) {
  const Walk train{Mode::train, 1, kSeq, kSamples};
  Rig rig(shape(), options(), {train});
  TokenBatches source = batches();
  rig.executor().train_step(train, source, {}, rig.optimizer());
  const Parameter* head = rig.parameters().find(shape().tied_head ? "word_embeddings.weight" : "lm_head.weight");
  ASSERT_NE(head, nullptr);
  const std::vector<float> gradient = rig.state(*head, GradientProbe::kState);
  EXPECT_TRUE(std::any_of(gradient.begin(), gradient.begin() + kIds * 20, [](float g) { return g != 0; }));
  EXPECT_TRUE(std::all_of(gradient.begin() + kIds * 20, gradient.end(), [](float g) { return g == 0; }));
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Switches, std::string>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(Switches, Shapes,
                         ::testing::Combine(::testing::Values(Switches{"bloom", false, true, true},
                                                              Switches{"gpt", true, false, true},
                                                              Switches{"untied", false, true, false},
                                                              Switches{"untied_gpt", true, false, false},
                                                              Switches{"learned", true, true, true}),
                                            ::testing::ValuesIn(providers())),
                         name_of);

}  // namespace
}  // namespace espalier::testing_support
