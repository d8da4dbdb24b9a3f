#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "espalier/config.hpp"
#include "espalier/optimizer.hpp"

/// AdamW as optimizer plugins share it: options, state names, the call of the fused kernel. What differs between precisions is
/// which tensor is the truth.
namespace espalier {

inline constexpr OptionSpec kAdamWOptions[] = {
    {"betas", OptionType::numbers, "[0.9, 0.95]", "decay rates of the first and second moment", 0.0, 1.0},
    {"eps", OptionType::number, "1e-8", "added to the root of the second moment", 0.0},
    {"weight_decay", OptionType::number, "0.1", "decoupled decay of matrices, times the learning rate", 0.0},
};

/// State of AdamW with separate FP32 master weights: 12 bytes a parameter.
inline constexpr StateSpec kAdamWMasterState[] = {
    {"master", DType::f32, Keep::like_parameter, 0.0f},
    {"moment1", DType::f32, Keep::like_parameter, 0.0f},
    {"moment2", DType::f32, Keep::like_parameter, 0.0f},
};

class AdamWRule {
 public:
  explicit AdamWRule(const ConfigView& config)
      : eps_(config.number("eps")), weight_decay_(config.number("weight_decay")) {
    const auto betas = config.numbers("betas");
    if (betas.size() != 2) config.fail("betas", "expected two numbers, [beta1, beta2]; found " + std::to_string(betas.size()));
    for (const double beta : betas) {
      // beta = 1 would divide by 1 - 1^t = 0 in the bias correction.
      if (beta >= 1.0) config.fail("betas", "expected numbers in [0, 1); found " + std::to_string(beta));
    }
    beta1_ = betas[0];
    beta2_ = betas[1];
  }

  /// @param moments  the two moments, in this order, of the block's state.
  /// @param working  rounded copy to refresh, or empty when master itself is the working weight.
  void update(const UpdateBlock& block, std::span<const View> moments, const View& working, const StepInputs& inputs,
              UpdateKernels& kernels, Stream& stream) const {
    AdamW args;
    args.gradient = block.gradient;
    args.master = block.master;
    args.moment1 = moments[0];
    args.moment2 = moments[1];
    args.working = working;
    args.lr = inputs.lr;
    args.beta1 = beta1_;
    args.beta2 = beta2_;
    args.eps = eps_;
    args.weight_decay = block.parameter->decays ? weight_decay_ : 0.0;
    args.step = inputs.applied_steps;
    args.factor = inputs.factor;
    args.skip = inputs.skip;
    kernels.adamw(args, stream);
  }

  std::string description() const {
    return "AdamW betas " + text(beta1_) + ", " + text(beta2_) + ", eps " + text(eps_) + ", weight decay " + text(weight_decay_);
  }

 private:
  static std::string text(double value) {
    std::string digits(32, '\0');
    digits.resize(static_cast<std::size_t>(std::snprintf(digits.data(), digits.size(), "%g", value)));
    return digits;
  }

  double beta1_ = 0, beta2_ = 0, eps_ = 0, weight_decay_ = 0;
};

}  // namespace espalier
