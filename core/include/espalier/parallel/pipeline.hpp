#pragma once

#include <memory>
#include <span>
#include <vector>

#include "espalier/export.hpp"
#include "espalier/parallel/schedule.hpp"
#include "espalier/reason.hpp"

namespace espalier {

/// Which layers a stage holds, and in what order it works. Pure: no communication of its own.
class ESPALIER_API PipelineParallel {
 public:
  PipelineParallel(const PipelineParallel&) = delete;
  PipelineParallel& operator=(const PipelineParallel&) = delete;
  virtual ~PipelineParallel();

  virtual int stages() const = 0;
  /// Chunks (virtual stages) on each rank; chunk c of stage s is part c · stages + s of the model.
  virtual int chunks() const = 0;
  /// Cuts the layer list (0 embedding, 1 … L blocks, L + 1 head) into stages · chunks contiguous parts.
  /// @param layer_cost  relative cost of each layer.
  /// @returns first layer of each part, stages · chunks + 1 entries, the last one the number of layers.
  /// @throws ConfigError when a part would be empty.
  virtual std::vector<int> cut(std::span<const double> layer_cost) const = 0;
  /// Why this count of micro-batches cannot be scheduled, or nothing.
  virtual Reason accepts(Mode mode, int micro_batches) const = 0;
  virtual std::vector<Instruction> schedule(Mode mode, int stage, int micro_batches) const = 0;
  /// Whether the ranks of a tensor group, where they hold the same activation, send 1/t of it each and gather it after the receive.
  virtual bool scatters_messages() const { return false; }

 protected:
  PipelineParallel() = default;
};

/// One stage: for each micro-batch forward and backward, then reduce and step.
ESPALIER_API std::unique_ptr<PipelineParallel> make_single_stage();

}  // namespace espalier
