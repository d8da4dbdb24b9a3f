#include "train/probe.hpp"

namespace espalier::app {

GradientProbe::GradientProbe(const Optimizer& model) : model_(model) {
  for (const StateSpec& spec : model.state()) {
    if (std::string_view(spec.name) == "master") specs_.push_back(spec);
  }
  specs_.push_back({kState, DType::f32, Keep::like_parameter, 0.0f});
}

void GradientProbe::update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) {
  // No skip: a gradient that is not finite is what the user wants to see.
  const View& kept = block.state.back();
  kernels.scale(kept, 0.0, nullptr, nullptr, stream);
  kernels.axpy(1.0, block.gradient, kept, {}, inputs.factor, nullptr, stream);
}

}  // namespace espalier::app
