#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/context.hpp"

namespace espalier::app {

/// Stand-ins that compute, communicate and store nothing: with them the model's own code walks an instruction list and
/// only the arena moves, so that plan and run use the same size computation.
class DryRun {
 public:
  /// @param real  shape, precision, kernels (for the bytes attention keeps), device and tensor strategy of the run;
  /// `data`, `stream`
  ///              and memory need not exist yet.
  DryRun(const ModelContext& real, std::span<const LocalParameter> parameters);
  ~DryRun();

  /// A context around a dry arena of its own.
  const ModelContext& context() const { return context_; }
  Arena& arena() { return arena_; }
  /// What was acquired since the last call, in order.
  std::vector<LayerUse> take_uses();
  /// The most scratch a call needed so far, and one matrix product of each shape.
  std::size_t workspace() const;
  std::span<const Matmul> products() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  Arena arena_;
  ModelContext context_;
};

}  // namespace espalier::app
