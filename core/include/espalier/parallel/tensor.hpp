#pragma once

#include <cstdint>
#include <memory>

#include "espalier/communicator.hpp"
#include "espalier/facts.hpp"
#include "espalier/parallel/parameter.hpp"

namespace espalier {

enum class Pass : std::uint8_t { forward, backward };

/// `inside` a sharded region (between a column- and a row-parallel linear map) or `outside` of it (residual stream, norms).
enum class Region : std::uint8_t { outside, inside };

/// How each role is sharded over the tensor group, and what is communicated at the borders of a sharded region.
/// The model calls enter and leave at the two conjugate points (Megatron-LM's f and g, arXiv:1909.08053) whatever the size.
class ESPALIER_API TensorParallel {
 public:
  TensorParallel(const TensorParallel&) = delete;
  TensorParallel& operator=(const TensorParallel&) = delete;
  virtual ~TensorParallel();

  virtual int size() const = 0;
  virtual int rank() const = 0;
  /// Why the model cannot be split this way (heads, vocabulary, …), or nothing.
  virtual Reason accepts(const ModelShape& model) const = 0;
  /// This rank's piece. QKV rows are cut at head borders; heads are owned in contiguous ranges.
  virtual Placement place(const Parameter& parameter) const = 0;
  /// Rows of an activation of `tokens` flattened tokens in a region: the only source of activation shapes.
  virtual std::int64_t rows(std::int64_t tokens, Region region) const = 0;
  /// First flattened token of this rank's rows outside (not 0 under sequence parallelism).
  virtual std::int64_t first_row(std::int64_t tokens) const = 0;

  /// In which dtype the model makes what a border sums (enter backward, leave forward): the working type, or f32 so that
  /// the sum is rounded once, as one rank rounds it. The result has the same dtype.
  virtual DType partial_dtype(DType working) const { return working; }

  struct Border {
    View result;      ///< where the result is, or will be once `request` is finished
    Request request;  ///< none: ready now
  };
  /// Before a column-parallel map. Forward: outside rows → inside rows (identity, or all-gather); backward: inside → outside
  /// (all-reduce, or reduce-scatter).
  /// @param x  [rows, hidden] contiguous; may be reduced in place.
  /// @param scratch  [rows after the border, hidden], used when x cannot serve; result is x or scratch.
  virtual Border enter(const View& x, const View& scratch, Pass pass, Stream& stream) = 0;
  /// After a row-parallel map, the conjugate: forward all-reduce or reduce-scatter, backward identity or all-gather.
  virtual Border leave(const View& x, const View& scratch, Pass pass, Stream& stream) = 0;
  /// Over the tensor group, in place: the vectors of the cross entropy.
  virtual Request reduce(const View& x, Reduce how, Stream& stream) = 0;
  virtual void finish(Request request, Stream& stream) = 0;

 protected:
  TensorParallel() = default;
};

/// One rank: everything whole, every border the identity.
ESPALIER_API std::unique_ptr<TensorParallel> make_whole_tensors();

}  // namespace espalier
