#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "call_record.hpp"
#include "session/session.hpp"

namespace espalier::bench {

/// What the device reaches, measured or assumed.
struct Rates {
  double copy = 0;  ///< bytes a second, read and written ones counted
  double peak = 0;  ///< FLOP/s of a large product in the working type
};

/// Where the time of a recipe's training step goes, part by part: what a model makes of the calls' shapes, and what
/// they take. Both count the calls that the step makes, whatever the model's size.
///
/// The model: a product reaches 85 % of the peak, attention 45 % (backward 35 %) of it, what moves memory 80 % of the
/// copy; no call takes less than 2.5 us, a kernel's start. Measured: each call by itself, waited for, less what the
/// smallest call takes so; and whole steps, where calls follow one another without waits.
///
/// Must outlive the session, whose data strategy then has memory that this reserved.
class StepBench {
 public:
  StepBench();
  ~StepBench();

  /// Prints it. Once for a session, whose own executor must not have been bound.
  /// @param dry  no device: the model alone.
  /// @return     the same for JSON.
  nlohmann::ordered_json run(app::Session& session, const Rates& rates, bool dry);

 private:
  CallRecord record_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace espalier::bench
