#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "espalier/export.hpp"

namespace espalier {

struct Metric {
  std::string_view name;  ///< "lm loss", "grad norm", …: docs/vocabulary.md
  double value = 0;
};

/// Where a step is: every curve can be drawn against any of the three.
struct Progress {
  std::int64_t step = 0;  ///< finished steps
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
};

/// What becomes of metrics and events. Lives on one rank (the last of the world, as the field does). Calls come from the training
/// thread; none may allocate once step 2 is over.
class ESPALIER_API Monitor {
 public:
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  virtual ~Monitor();

  virtual void metrics(const Progress& progress, std::span<const Metric> metrics) = 0;
  /// Start, resume, checkpoint, evaluation, stop: one line of text. @param kind "checkpoint", "evaluation", …
  virtual void event(const Progress& progress, std::string_view kind, std::string_view text) = 0;
  /// Everything so far is on disk when this returns (before a checkpoint is published, at the end).
  virtual void flush() = 0;
  /// A resumed run continues after `progress`: later records are dropped.
  virtual void resume(const Progress& progress) = 0;

 protected:
  Monitor() = default;
};

}  // namespace espalier
