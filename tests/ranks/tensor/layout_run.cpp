#include "ranks/tensor/layout_run.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace espalier::testing_support {
namespace {

RigOptions rig_options(const ModelShape& model, const Layout& layout) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  const char* recompute[] = {"none", "selective", "full"};
  RigOptions options;
  options.tensor = layout.tensor;
  options.micro = layout.micro;
  options.micro_batches = layout.global / layout.data / layout.micro;
  options.tokenizer_vocab = model.tokenizer_vocab;
  options.set = keys_of(model);
  for (const std::string& key :
       {std::string("parallel.tensor.sequence_parallel=") + truth(layout.sequence_parallel),
        std::string("parallel.tensor.overlap=") + truth(layout.overlap),
        "parallel.tensor.reduction=" + layout.reduction, "parallel.data.stage=" + std::to_string(layout.zero),
        "optimizer.plugin=" + layout.optimizer, "backend.plugin=" + layout.provider,
        std::string("train.recompute=") + recompute[static_cast<int>(layout.recompute)]}) {
    options.set.push_back(key);
  }
  return options;
}

}  // namespace

ModelShape small_model() {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 48;
  shape.heads = 12;
  shape.ffn = 96;
  shape.vocab = 61;
  shape.tokenizer_vocab = 59;
  shape.seq_length = 12;
  return shape;
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << "tensor " << layout.tensor << " data " << layout.data << (layout.sequence_parallel ? " sp" : "")
             << (layout.overlap ? "" : " no overlap") << " zero " << layout.zero << " " << layout.optimizer << " "
             << layout.provider;
}

LayoutRun::LayoutRun(Communicator& world, const ModelShape& model, const Layout& layout)
    : SessionRig(world, rig_options(model, layout)), layout_(layout) {
  if (layout.probe) probe_.emplace(session().optimizer());
  const Walk walks[] = {train_walk(), eval_walk()};
  bind(walks, optimizer(), layout.std);
}

Verdict LayoutRun::step(std::int64_t number) {
  HashedBatches source = batches(number);
  return step(source, number);
}

Verdict LayoutRun::step(BatchSource& source, std::int64_t number) {
  StepSettings settings;
  settings.lr = 1e-3;
  settings.clip = 1.0;
  settings.applied_steps = number + 1;
  return executor().train_step(train_walk(), source, settings, optimizer());
}

EvalResult LayoutRun::evaluate(std::int64_t number) {
  HashedBatches source = batches(number);
  return executor().evaluate(eval_walk(), source);
}

std::unique_ptr<LayoutRun> run_alone(const ModelShape& model, Layout layout) {
  const auto self = make_self_communicator("world");
  layout.tensor = layout.data = 1;
  layout.sequence_parallel = false;
  return std::make_unique<LayoutRun>(*self, model, layout);
}

void expect_gradients(LayoutRun& run, LayoutRun& alone, double share) {
  const auto expected = alone.gather(GradientProbe::kState), found = run.gather(GradientProbe::kState);
  const std::int64_t head_dim = run.facts().model.head_dim();
  for (const auto& [name, truth] : expected) {
    const auto& values = found.at(name);
    ASSERT_EQ(values.size(), truth.size()) << name;
    double squares = 0;
    for (const float value : truth) squares += static_cast<double>(value) * value;
    const double rms = std::sqrt(squares / static_cast<double>(truth.size()));
    const bool qkv_bias = name.find("query_key_value.bias") != std::string::npos;
    for (std::size_t i = 0; i < truth.size(); ++i) {
      const bool key_bias = qkv_bias && static_cast<std::int64_t>(i) / head_dim % 3 == 1;
      ASSERT_NEAR(values[i], truth[i], (key_bias ? 0 : share * rms) + 1e-8) << name << " element " << i;
    }
  }
}

}  // namespace espalier::testing_support
