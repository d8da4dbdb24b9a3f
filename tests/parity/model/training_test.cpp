// Steps of AdamW against the float64 truth: parameters, losses and norms in FP32, and the curves in BF16 and over 200
// steps.
#include <iomanip>
#include <sstream>
#include <tuple>

#include "parity/model/rig.hpp"

namespace espalier::testing_support {
namespace {

/// One step on micro-batches of `batches`; loss and norm before clipping.
Verdict step(Rig& rig, const Walk& walk, BatchSource& batches, double lr, double clip, std::int64_t number) {
  StepSettings settings;
  settings.lr = lr;
  settings.clip = clip;
  settings.applied_steps = number;
  return rig.executor().train_step(walk, batches, settings, rig.optimizer());
}

double mean_loss(const Verdict& verdict) { return verdict.loss_sum / static_cast<double>(verdict.tokens); }

/// Rows [first, first + count) of a token tensor.
std::vector<std::int64_t> rows(const FileTensor& tokens, std::int64_t first, std::int64_t count) {
  const std::vector<std::int64_t> all = read_i64(tokens);
  const std::int64_t width = tokens.shape.back();
  return {all.begin() + first * width, all.begin() + (first + count) * width};
}

bool is_key_bias(const std::string& name, std::size_t element, std::int64_t head_dim) {
  return name.find("query_key_value.bias") != std::string::npos &&
         (static_cast<std::int64_t>(element) / head_dim) % 3 == 1;
}

/// Mean and largest difference, without the key biases: their gradient is rounding noise that Adam divides by itself.
void expect_parameters(Rig& rig, const SafetensorsFile& truth, int after) {
  const std::int64_t head_dim = rig.facts().model.head_dim();
  for (const Parameter& parameter : rig.parameters().all()) {
    const std::string name(parameter.name);
    const auto expected = read_all(truth.at("step" + std::to_string(after) + ".transformer." + name));
    const auto found = rig.state(parameter, "master");
    ASSERT_EQ(found.size(), expected.size());
    double sum = 0, largest = 0;
    std::size_t n = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (is_key_bias(name, i, head_dim)) continue;
      const double difference = std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
      sum += difference;
      largest = std::max(largest, difference);
      ++n;
    }
    EXPECT_LE(sum / static_cast<double>(n), 1e-6) << name << " after " << after << " steps";
    EXPECT_LE(largest, 2e-4) << name << " after " << after << " steps";
  }
}

class Training : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }
  ModelRigOptions options(const std::string& optimizer) const {
    ModelRigOptions options;
    options.provider = std::get<1>(GetParam());
    options.optimizer = optimizer;
    return options;
  }
};

TEST_P(Training, TenStepsOfAdamW) {
  const SafetensorsFile truth(model_fixture(model() + "/adamw.safetensors"));
  const nlohmann::json facts = read_json_fixture(model() + "/adamw.json");
  const FileTensor& tokens = truth.at("batches");
  const Walk walk{Mode::train, 1, tokens.shape.back() - 1, 2};
  Rig rig(model() + "/hf", options("optim_fp32"), {walk});
  for (int s = 1; s <= 10; ++s) {
    TokenBatches batches(rows(tokens, 2 * (s - 1), 2), tokens.shape.back(), 1);
    const Verdict verdict = step(rig, walk, batches, 1e-3, 1.0, s);
    const auto at = static_cast<std::size_t>(s - 1);
    EXPECT_NEAR(mean_loss(verdict), facts["loss"][at].get<double>(), 5e-6) << "step " << s;
    const double norm = facts["grad_norm_before_clip"][at].get<double>();
    EXPECT_NEAR(verdict.norm, norm, 1e-5 * norm) << "step " << s;
    if (s == 1 || s == 3 || s == 10) expect_parameters(rig, truth, s);
  }
}

/// The same batches with one hyper-parameter changed: what a mistake in one of them would look like.
TEST_P(Training, EachHyperParameterMatters) {
  struct Variant {
    const char* name;
    double lr, clip, weight_decay, eps;
    double beta1 = 0.9, beta2 = 0.95;
  };
  const Variant variants[] = {
      {"clip_off", 1e-3, 0, 0.1, 1e-8},          {"clip_off_wd0", 1e-3, 0, 0, 1e-8},
      {"lr_1e-2", 1e-2, 1.0, 0.1, 1e-8},         {"clip_2.2", 1e-3, 2.2, 0.1, 1e-8},
      {"eps_1e-3_clip_off", 1e-3, 0, 0.1, 1e-3}, {"betas_0.8_0.99", 1e-3, 1.0, 0.1, 1e-8, 0.8, 0.99}};
  const SafetensorsFile truth(model_fixture(model() + "/adamw.safetensors"));
  const nlohmann::json facts = read_json_fixture(model() + "/adamw.json");
  const FileTensor& tokens = truth.at("batches");
  const Walk walk{Mode::train, 2, tokens.shape.back() - 1, 1};
  for (const Variant& variant : variants) {
    const auto found = facts["variants"].find(variant.name);
    ASSERT_NE(found, facts["variants"].end()) << variant.name;
    ModelRigOptions with_hyper_parameters = options("optim_fp32");
    std::ostringstream decay, eps, betas;
    decay << "optimizer.weight_decay=" << std::setprecision(17) << variant.weight_decay;
    eps << "optimizer.eps=" << std::setprecision(17) << variant.eps;
    betas << "optimizer.betas=[" << std::setprecision(17) << variant.beta1 << ", " << variant.beta2 << "]";
    with_hyper_parameters.set = {decay.str(), eps.str(), betas.str()};
    Rig rig(model() + "/hf", with_hyper_parameters, {walk});
    for (int s = 1; s <= 10; ++s) {
      TokenBatches batches(rows(tokens, 2 * (s - 1), 2), tokens.shape.back(), 2);
      const Verdict verdict = step(rig, walk, batches, variant.lr, variant.clip, s);
      // The fixture's bound is for a rate of 1e-3. What rounding noise Adam turns into steps is as large as the rate.
      const double tolerance = 5e-6 * variant.lr / 1e-3;
      EXPECT_NEAR(mean_loss(verdict), (*found)["loss"][static_cast<std::size_t>(s - 1)].get<double>(), tolerance)
          << variant.name << " step " << s;
    }
  }
}

/// Ten steps in 16 bits: all activations are rounded, so the wider bounds that the fixture's README advises hold.
void expect_near_float64(const std::string& model, const ModelRigOptions& options) {
  const SafetensorsFile truth(model_fixture(model + "/adamw.safetensors"));
  const nlohmann::json facts = read_json_fixture(model + "/adamw.json");
  const FileTensor& tokens = truth.at("batches");
  const Walk walk{Mode::train, 1, tokens.shape.back() - 1, 2};
  Rig rig(model + "/hf", options, {walk});
  for (int s = 1; s <= 10; ++s) {
    TokenBatches batches(rows(tokens, 2 * (s - 1), 2), tokens.shape.back(), 1);
    const Verdict verdict = step(rig, walk, batches, 1e-3, 1.0, s);
    EXPECT_TRUE(verdict.finite);
    const auto at = static_cast<std::size_t>(s - 1);
    EXPECT_NEAR(mean_loss(verdict), facts["loss"][at].get<double>(), 1e-2) << "step " << s;
    const double norm = facts["grad_norm_before_clip"][at].get<double>();
    EXPECT_NEAR(verdict.norm, norm, 0.015 * norm) << "step " << s;
  }
}

TEST_P(Training, Bf16StaysNearFloat64) { expect_near_float64(model(), options("optim_bf16")); }
TEST_P(Training, Fp16WithALossScaleStaysNearFloat64) { expect_near_float64(model(), options("optim_fp16")); }

std::string name_of(const ::testing::TestParamInfo<std::tuple<std::string, std::string>>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(Models, Training,
                         ::testing::Combine(::testing::Values("tiny_a", "tiny_b"), ::testing::ValuesIn(providers())),
                         name_of);

class Curve : public ::testing::TestWithParam<std::string> {};

TEST_P(Curve, TwoHundredStepsFollowFloat64) {
  const nlohmann::json facts = read_json_fixture("tiny_a/curve200.json");
  const SafetensorsFile file(model_fixture("tiny_a/curve200_tokens.safetensors"));
  const std::vector<std::int64_t> tokens = read_i64(file.tensors().front());
  const Walk walk{Mode::train, 4, 32, 2};
  ModelRigOptions options;
  options.provider = GetParam();
  options.optimizer = "optim_fp32";
  Rig rig("tiny_a/hf", options, {walk});
  for (int s = 0; s < 200; ++s) {
    std::vector<std::int64_t> batch;
    for (int r = 0; r < 8; ++r) {
      const auto first = tokens.begin() + (8 * s + r) * 32;
      batch.insert(batch.end(), first, first + 33);
    }
    TokenBatches batches(batch, 33, 4);
    const Verdict verdict = step(rig, walk, batches, 1e-3, 1.0, s + 1);
    ASSERT_NEAR(mean_loss(verdict), facts["loss_float64"][static_cast<std::size_t>(s)].get<double>(), 2e-5)
        << "step " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Providers, Curve, ::testing::ValuesIn(providers()), provider_name);

}  // namespace
}  // namespace espalier::testing_support
