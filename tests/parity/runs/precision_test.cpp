// BF16 where it counts: gradients are accumulated in FP32 and weights have an FP32 truth, with every provider of
// kernels.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "host/plugin_host.hpp"
#include "support/doubles/host.hpp"
#include "support/doubles/plain_backend.hpp"

namespace espalier {
namespace {

using app::PluginHost;
using testing_support::PlainBackend;
using testing_support::TestConfig;
using testing_support::TestHost;

class Precision16 : public testing::TestWithParam<const char*> {
 protected:
  Precision16() : context_(none_), plugins_({ESPALIER_PLUGIN_DIR}) {
    if (std::string_view(GetParam()) == "reference") {
      reference_ = make_reference_backend(context_.threads());
      backend_ = reference_.get();
      return;
    }
    const LoadedPlugin& plugin = plugins_.load(GetParam());
    backend_options_ =
        std::make_unique<TestConfig>(plugin.options<Backend>(), std::map<std::string, ConfigValue::Data>());
    fused_ = plugins_.create<Backend>(plugin, backend_options_->view(), context_);
    backend_ = fused_.get();
  }
  const KernelSet& kernels() { return backend_->kernels(); }
  Stream& stream() { return backend_->device().lane(Lane::compute); }
  void wait() { backend_->device().wait(stream()); }

  PlainBackend none_;
  TestHost context_;
  PluginHost plugins_;
  std::unique_ptr<TestConfig> backend_options_;
  std::unique_ptr<Backend> reference_;
  Owned<Backend> fused_;
  Backend* backend_ = nullptr;
};

// P09: 512 micro-batches, each adding a gradient of 1; in BF16 the sum would stop at 256.
TEST_P(Precision16, GradientsOf512MicroBatchesAddUp) {
  constexpr std::int64_t kWidth = 16;
  std::vector<BFloat16> ones(kWidth, from_float<BFloat16>(1.0f)), identity(kWidth * kWidth);
  for (std::int64_t i = 0; i < kWidth; ++i)
    identity[static_cast<std::size_t>(i * kWidth + i)] = from_float<BFloat16>(1.0f);
  std::vector<float> bias(kWidth), weight(kWidth * kWidth);
  const View x = View::matrix(ones.data(), 1, kWidth, DType::bf16);
  const View eye = View::matrix(identity.data(), kWidth, kWidth, DType::bf16);
  for (int micro_batch = 0; micro_batch < 512; ++micro_batch) {
    kernels().matrix->column_sum(x, View::vector(bias.data(), kWidth, DType::f32), true, stream());
    kernels().matrix->matmul(
        {eye, eye, View::matrix(weight.data(), kWidth, kWidth, DType::f32), true, false, true, {}, 0}, stream());
  }
  wait();
  for (const float value : bias) EXPECT_EQ(value, 512);
  for (std::int64_t i = 0; i < kWidth; ++i) EXPECT_EQ(weight[static_cast<std::size_t>(i * kWidth + i)], 512);
}

// P11: updates below half a BF16 step: the truth moves all the same, and the working weight is the truth rounded.
TEST_P(Precision16, SmallUpdatesReachTheMasterWeights) {
  const LoadedPlugin& plugin = plugins_.load("optim_bf16");
  const TestConfig options(plugin.options<Optimizer>(), {{"eps", 1e-12}});
  const Owned<Optimizer> optimizer = plugins_.create<Optimizer>(plugin, options.view(), context_);
  ASSERT_EQ(optimizer->precision().working, DType::bf16);
  ASSERT_EQ(to_float(from_float<BFloat16>(1.0f - 6e-4f)), 1.0f) << "one update alone is lost in BF16";

  float master = 1, moment1 = 0, moment2 = 0;
  BFloat16 working = from_float<BFloat16>(1.0f);
  const std::array<View, 3> state = {View::vector(&master, 1, DType::f32), View::vector(&moment1, 1, DType::f32),
                                     View::vector(&moment2, 1, DType::f32)};
  Parameter parameter;
  parameter.shape = {1};
  for (int step = 1; step <= 100; ++step) {
    float gradient = 1, factor = 1;  // a constant gradient: each update is the learning rate
    std::int32_t skip = 0;
    const UpdateBlock block{&parameter, View::vector(&gradient, 1, DType::f32), View::vector(&working, 1, DType::bf16),
                            state, state[0]};
    StepInputs inputs;
    inputs.lr = 6e-4;
    inputs.factor = &factor;
    inputs.skip = &skip;
    inputs.applied_steps = step;
    optimizer->update(block, inputs, *kernels().update, stream());
    wait();
  }
  EXPECT_NEAR(master, 0.94, 1e-5);
  EXPECT_EQ(to_float(working), to_float(from_float<BFloat16>(master)));
  EXPECT_EQ(to_float(working), to_float(from_float<BFloat16>(0.94f)));
}

INSTANTIATE_TEST_SUITE_P(Providers, Precision16, testing::Values("reference", "kernels_fused"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace espalier
