#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "espalier/config.hpp"
#include "espalier/optimizer.hpp"

namespace espalier::optim_fp16 {

/// Dynamic loss scale with hysteresis: halved when overflows exhaust the hysteresis, doubled after `window` steps without one.
/// Source: Micikevicius et al. 2017, arXiv:1710.03740; hysteresis and window as Megatron-LM and DeepSpeed have them.
class LossScale {
 public:
  explicit LossScale(const ConfigView& config);

  double value() const { return scale_; }
  bool dynamic() const { return dynamic_; }
  /// @throws NumericsError when a step overflows at the minimum with no hysteresis left.
  void after(bool finite, std::string_view first_bad);
  std::vector<OptimizerScalar> scalars();
  std::string description() const;

 private:
  [[noreturn]] void give_up(std::string_view first_bad) const;

  bool dynamic_ = true;
  double window_ = 0, hysteresis_ = 0, minimum_ = 0;
  // Doubles, so that a checkpoint keeps them as they are: growth continues at the same step after a resume.
  double scale_ = 1, good_steps_ = 0, hysteresis_left_ = 0, steps_ = 0;

  struct Overflow {
    std::int64_t step = 0;
    double scale = 0;
  };
  std::array<Overflow, 8> history_{};  ///< the last overflows, for the message; a ring
  std::int64_t overflows_ = 0;
};

}  // namespace espalier::optim_fp16
