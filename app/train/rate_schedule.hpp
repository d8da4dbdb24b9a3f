#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::app {

enum class RateDecay : std::uint8_t { constant, linear, cosine, inverse_sqrt, wsd };
enum class WsdDecay : std::uint8_t { linear, cosine, exponential, minus_sqrt };

/// "constant", "linear", … as the recipe spells them.
std::string_view name_of(RateDecay decay);
std::string_view name_of(WsdDecay decay);

/// The learning rate over consumed samples. All lengths in samples, counted from the start of the run.
struct RateSpec {
  double lr = 0;      ///< peak
  double min_lr = 0;  ///< floor
  RateDecay decay = RateDecay::cosine;
  std::int64_t warmup_samples = 0;     ///< linear from 0
  std::int64_t decay_samples = 0;      ///< where the floor is reached, warm-up included
  std::int64_t wsd_decay_samples = 0;  ///< length of the last phase of wsd: it ends at decay_samples
  WsdDecay wsd_decay = WsdDecay::linear;
};

/// Learning rate as a pure function of consumed samples, so that a resume cannot drift.
/// Source: Megatron-LM, OptimizerParamScheduler; golden values are those of BLOOM's log.
class RateSchedule {
 public:
  explicit RateSchedule(const RateSpec& spec) : spec_(spec) {}

  const RateSpec& spec() const { return spec_; }
  /// The rate of the step that starts when `consumed` samples have been trained on. No allocation.
  double rate(std::int64_t consumed) const;

 private:
  RateSpec spec_;
};

/// "learning rate: warm-up ends at a, minimum reached at b, training ends at c (samples)".
std::string summary(const RateSpec& spec, std::int64_t train_samples);
/// What looks like a mistake without being an error: the minimum is reached before training ends, or never.
std::vector<std::string> warnings(const RateSpec& spec, std::int64_t train_samples);

}  // namespace espalier::app
