#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/optimizer.hpp"
#include "espalier/parallel/parameter.hpp"
#include "espalier/parallel/schedule.hpp"

namespace espalier {

/// Where a weight gradient goes, and whether it is added to what is there.
struct GradientSlot {
  View where;        ///< f32, local shape of the parameter (a vector: one row)
  bool add = false;
};

/// A stage's work and storage, told to the strategy before memory exists.
struct StatePlan {
  std::span<const LocalParameter> parameters;  ///< of this stage, layer by layer; kept by the caller for the whole run
  Precision precision;
  std::span<const Instruction> schedule;       ///< this stage's longest training list
  int first_layer = 0;                         ///< layers of this stage: [first_layer, end_layer)
  int end_layer = 0;
};

/// The gradients of a layer that are queued together: `input` those of vectors (norms, biases), `weight` those of matrices
/// (docs/architecture.md section 8, "Split backward").
enum class Half : std::uint8_t { input, weight };

/// What a layer's work reads of its weights. Tables are the embeddings and the untied head's matrix.
enum class Need : std::uint8_t { all, all_but_tables, tables };
struct LayerUse {
  int layer = 0;
  Need need = Need::all;
};

/// The bytes a plan asks for, by purpose.
struct StateBytes {
  std::size_t weights = 0, gradients = 0, optimizer = 0, scratch = 0;
  std::vector<MemoryUse> parts;  ///< by name: padding within the first three, and all that makes up scratch
  std::size_t total() const { return weights + gradients + optimizer + scratch; }
};

/// A contiguous range of one local parameter's elements as this rank stores it: what checkpoints, initialisation and the guard
/// work on. Flat indices count in `placement.local`, row-major; in the logical `parameter.shape` where `whole` says so.
struct StatePiece {
  int parameter = 0;          ///< position in StatePlan::parameters; -1: state kept once for all (Keep::global), one element
  std::string_view state;     ///< "master" (always there: the FP32 truth), "moment1", "moment2", …
  std::int64_t begin = 0;     ///< flat range [begin, end) of the local tensor; [0, 1) for Keep::per_tensor
  std::int64_t end = 0;
  View data;                  ///< [1, end − begin], device memory
  bool writes = true;         ///< whether this rank writes it into a checkpoint (one rank of those that hold it)
  bool whole = false;         ///< state of a matrix that is split over the tensor group, all of it with its owner (Unit::tensor)
};

/// How parameters, gradients and optimizer state are stored, reduced, gathered and released over the data group.
///
/// Order of a step: begin; for each micro-batch acquire → (gradient, written) → release; reduce(reduce_gradients),
/// reduce(reduce_tied_gradients); squares; the world agrees on the verdict; step. Collective calls come in the same order on all
/// ranks of the data group.
class ESPALIER_API DataParallel {
 public:
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;
  virtual ~DataParallel();

  /// Bytes of what bind() will reserve. Pure; may be called for other stages too (the planner does).
  virtual StateBytes plan(const StatePlan& plan, const Optimizer& optimizer) const = 0;
  /// Reserves memory, zeroed. The plan's spans stay valid for the life of this object.
  virtual void bind(const StatePlan& plan, const Optimizer& optimizer, Backend& backend) = 0;

  /// A list of instructions begins that will acquire `uses` in this order (an announcement: for gathering ahead).
  /// @param uses  kept by the caller until the next begin.  @param micro_batches  that write gradients; 0: none do.
  virtual void begin(std::span<const LayerUse> /*uses*/, int /*micro_batches*/) {}
  /// Makes the working weights of a layer whole until release. Other layers may stay whole too.
  virtual void acquire(int layer, Need need, Stream& stream) = 0;
  virtual void release(int layer, Need need) = 0;
  /// Working weights [local shape]; valid between acquire and release of its layer.
  /// @param parameter  position in the plan's list, here and below.
  virtual View weight(int parameter) const = 0;
  /// Changes whenever weights change: the version kernels may key packed copies on. 0: the same memory holds one layer after
  /// another, so nothing may be kept.
  virtual std::uint64_t weight_version() const = 0;

  /// Asked before each weight gradient. A parameter that is written several times in a micro-batch (the tied embedding, a head
  /// worked off in chunks) is asked for each time; the answer accounts for that.
  virtual GradientSlot gradient(int parameter, int micro_batch) = 0;
  /// All gradients of this half of the layer have been queued on `stream` for this micro-batch. The tied embedding belongs to
  /// layer 0 where that is held. Of each half, one layer at a time is being written.
  virtual void written(int layer, int micro_batch, Half half, Stream& stream) = 0;
  /// reduce_gradients: data group, then tensor partials. reduce_tied_gradients: first and last stage.
  virtual void reduce(Do what, Stream& stream) = 0;
  /// slots[parameter.index] += Σ g² of what this rank owns: over all ranks each logical element is counted exactly once.
  /// @param slots  device f64 [logical parameters], zeroed by the caller.
  virtual void squares(double* slots, Stream& stream) = 0;
  /// Updates what this rank owns and brings the working weights up to date on every rank; zeroes accumulators for the next step.
  virtual void step(Optimizer& optimizer, const StepInputs& inputs, Stream& stream) = 0;

  /// Everything this rank stores, in a fixed order. Views stay valid until bind or destruction.
  virtual std::vector<StatePiece> state() = 0;
  /// After "master" pieces were filled from outside: rounds them into the working weights, everywhere. Collective over the data
  /// and the tensor group.
  virtual void refresh(Stream& stream) = 0;
  /// Whether the weights of all data-parallel ranks are equal between steps. Where false, sync() makes them so (LocalSGD).
  virtual bool replicas_equal() const = 0;
  virtual void sync(Stream& stream) = 0;

 protected:
  DataParallel() = default;
};

/// One rank holds everything: no communication.
ESPALIER_API std::unique_ptr<DataParallel> make_single_replica();

}  // namespace espalier
