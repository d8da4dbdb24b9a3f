#include "train/rate_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace espalier::app {

namespace {

/// Shape of the last phase of wsd, from 1 to 0 as t goes from 0 to 1.
double wsd_shape(WsdDecay decay, double t) {
  switch (decay) {
    case WsdDecay::linear:
      return 1.0 - t;
    case WsdDecay::cosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * t));
    case WsdDecay::exponential:
      return 2.0 * std::pow(0.5, t) - 1.0;
    case WsdDecay::minus_sqrt:
      return 1.0 - std::sqrt(t);
  }
  return 0.0;
}

/// First sample count at which the floor holds; -1: never.
std::int64_t minimum_at(const RateSpec& spec) { return spec.decay == RateDecay::constant ? -1 : spec.decay_samples; }

}  // namespace

std::string_view name_of(RateDecay decay) {
  constexpr std::string_view kNames[] = {"constant", "linear", "cosine", "inverse_sqrt", "wsd"};
  return kNames[static_cast<std::size_t>(decay)];
}

std::string_view name_of(WsdDecay decay) {
  constexpr std::string_view kNames[] = {"linear", "cosine", "exponential", "minus_sqrt"};
  return kNames[static_cast<std::size_t>(decay)];
}

double RateSchedule::rate(std::int64_t consumed) const {
  const RateSpec& s = spec_;
  const double n = static_cast<double>(consumed);
  const double warmup = static_cast<double>(s.warmup_samples);
  if (consumed <= s.warmup_samples && s.warmup_samples > 0) return s.lr * n / warmup;
  if (s.decay == RateDecay::constant) return s.lr;
  if (consumed > s.decay_samples) return s.min_lr;
  if (s.decay == RateDecay::inverse_sqrt) {
    // Continuous with the end of the warm-up; the floor also cuts it before decay_samples.
    return std::max(s.min_lr, s.lr * std::sqrt(std::max(warmup, 1.0) / std::max(n, 1.0)));
  }
  const double length = static_cast<double>(s.decay_samples - s.warmup_samples);
  const double t = (n - warmup) / length;
  double shape = 1.0;
  switch (s.decay) {
    case RateDecay::linear:
      shape = 1.0 - t;
      break;
    case RateDecay::cosine:
      shape = 0.5 * (1.0 + std::cos(std::numbers::pi * t));
      break;
    case RateDecay::wsd: {
      const std::int64_t start = s.decay_samples - s.wsd_decay_samples;
      if (consumed > start) {
        shape =
            wsd_shape(s.wsd_decay, static_cast<double>(consumed - start) / static_cast<double>(s.wsd_decay_samples));
      }
      break;
    }
    case RateDecay::constant:
    case RateDecay::inverse_sqrt:
      break;
  }
  return s.min_lr + (s.lr - s.min_lr) * shape;
}

std::string summary(const RateSpec& spec, std::int64_t train_samples) {
  const std::int64_t minimum = minimum_at(spec);
  return fmt::format(
      "learning rate ({}, {:g} to {:g}): warm-up ends at {}, minimum reached {}, training ends at {} samples",
      name_of(spec.decay), spec.lr, spec.decay == RateDecay::constant ? spec.lr : spec.min_lr, spec.warmup_samples,
      minimum < 0 ? "never" : fmt::format("at {}", minimum), train_samples);
}

std::vector<std::string> warnings(const RateSpec& spec, std::int64_t train_samples) {
  std::vector<std::string> found;
  if (spec.lr == 0) found.push_back("train.lr is 0: weights will not change");
  const std::int64_t minimum = minimum_at(spec);
  if (spec.warmup_samples >= train_samples && spec.warmup_samples > 0) {
    found.push_back(
        fmt::format("training ends at {} samples, before the warm-up ends at {}: the peak rate is never reached",
                    train_samples, spec.warmup_samples));
  } else if (minimum >= 0 && minimum < train_samples) {
    found.push_back(fmt::format(
        "the minimum of the learning rate is reached at {} samples, before training ends at {}: the last {} "
        "samples train at {:g}; lr_decay_samples counts from the start of the run, warm-up included",
        minimum, train_samples, train_samples - minimum, spec.min_lr));
  }
  return found;
}

}  // namespace espalier::app
