#pragma once

#include <cstdint>

namespace espalier::app {

/// What the loop decides for one step.
struct StepSettings {
  double lr = 0;
  double clip = 0;                 ///< limit of the global gradient norm; 0: none
  std::int64_t applied_steps = 1;  ///< steps applied so far, this one included (Adam's t)
};

}  // namespace espalier::app
