#include "loss_scale.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "espalier/error.hpp"

namespace espalier::optim_fp16 {

LossScale::LossScale(const ConfigView& config)
    : dynamic_(config.number("loss_scale") == 0.0),
      window_(static_cast<double>(config.integer("loss_scale_window"))),
      hysteresis_(static_cast<double>(config.integer("hysteresis"))),
      minimum_(config.number("min_loss_scale")),
      scale_(dynamic_ ? std::ldexp(1.0, static_cast<int>(config.integer("initial_scale_power")))
                      : config.number("loss_scale")),
      hysteresis_left_(hysteresis_) {
  if (dynamic_ && scale_ < minimum_) {
    config.fail("initial_scale_power", "2^" + std::to_string(config.integer("initial_scale_power")) +
                                           " is below min_loss_scale = " + std::to_string(minimum_));
  }
  if (dynamic_) return;
  // The recipe that is saved with a checkpoint has every default in it: only what differs is a wish.
  const std::pair<const char*, bool> wishes[] = {{"initial_scale_power", config.integer("initial_scale_power") != 16},
                                                 {"loss_scale_window", config.integer("loss_scale_window") != 1000},
                                                 {"hysteresis", config.integer("hysteresis") != 2},
                                                 {"min_loss_scale", minimum_ != 1.0}};
  for (const auto& [key, differs] : wishes) {
    if (differs)
      config.fail(key, "is of the dynamic loss scale, and loss_scale gives a fixed one; leave one of them out");
  }
}

void LossScale::after(bool finite, std::string_view first_bad) {
  steps_ += 1;
  if (finite) {
    good_steps_ += 1;
    if (dynamic_ && good_steps_ >= window_) {
      scale_ *= 2;
      good_steps_ = 0;
      hysteresis_left_ = hysteresis_;
    }
    return;
  }
  history_[static_cast<std::size_t>(overflows_++) % history_.size()] = {static_cast<std::int64_t>(steps_), scale_};
  good_steps_ = 0;
  if (!dynamic_) return;  // a fixed scale: the trainer counts skipped steps and stops by its own policy
  if (hysteresis_left_ > 1) {
    hysteresis_left_ -= 1;
    return;
  }
  if (scale_ <= minimum_) give_up(first_bad);
  scale_ = std::max(scale_ / 2, minimum_);
}

std::vector<OptimizerScalar> LossScale::scalars() {
  return {{"loss_scale", &scale_},
          {"loss_scale_good_steps", &good_steps_},
          {"loss_scale_hysteresis_left", &hysteresis_left_},
          {"loss_scale_steps", &steps_}};
}

std::string LossScale::description() const {
  const auto text = [](double value) { return std::to_string(static_cast<std::int64_t>(value)); };
  if (!dynamic_) return "fixed loss scale " + text(scale_);
  return "dynamic loss scale from " + text(scale_) + ", window " + text(window_) + ", hysteresis " + text(hysteresis_) +
         ", minimum " + text(minimum_);
}

void LossScale::give_up(std::string_view first_bad) const {
  std::string text = "the loss scale is at its minimum and gradients still overflow: step " +
                     std::to_string(static_cast<std::int64_t>(steps_)) + ", first bad parameter " +
                     (first_bad.empty() ? std::string("unknown") : std::string(first_bad)) +
                     "; last overflows (step at scale):";
  const auto kept = static_cast<std::int64_t>(history_.size());
  for (std::int64_t i = std::max<std::int64_t>(0, overflows_ - kept); i < overflows_; ++i) {
    const Overflow& overflow = history_[static_cast<std::size_t>(i % kept)];
    text += " " + std::to_string(overflow.step) + " at " + std::to_string(static_cast<std::int64_t>(overflow.scale));
  }
  throw NumericsError(text + "; look at the data of these steps, lower train.lr, or use optim_bf16");
}

}  // namespace espalier::optim_fp16
