#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/backend.hpp"
#include "espalier/export.hpp"
#include "espalier/parallel/parameter.hpp"

namespace espalier {

/// `element`: the state of a shard cut anywhere may be updated alone. `tensor`: only the whole logical matrix (Muon).
enum class Unit : std::uint8_t { element, tensor };

/// How a piece of state relates to parameters; resharding understands these three.
enum class Keep : std::uint8_t { like_parameter, per_tensor, global };

/// One kind of state, under the names of docs/vocabulary.md: "master", "moment1", "moment2", …
/// A state named "master" is the FP32 truth of the weights; without it the working weights are, and they are f32.
struct StateSpec {
  const char* name = "";
  DType dtype = DType::f32;
  Keep keep = Keep::like_parameter;
  float initial = 0;
};

/// What one update works on: a flat range of one parameter (Unit::element), or the whole logical matrix (Unit::tensor).
struct UpdateBlock {
  const Parameter* parameter = nullptr;
  View gradient;                    ///< f32, reduced; not yet multiplied by the factor; scratch once it is read
  View working;                     ///< working weights to refresh; empty when they are the master weights
  std::span<const View> state;      ///< in the order of state(); `like_parameter` shaped like gradient, `per_tensor` one element
  View master;                      ///< f32: the state named "master", or the f32 working weights
};

struct StepInputs {
  double lr = 0;
  const float* factor = nullptr;        ///< device: multiplies gradients
  const std::int32_t* skip = nullptr;   ///< device: not 0 = leave everything as it is
  std::int64_t applied_steps = 1;       ///< t: steps applied so far, this one included
};

/// What the world agreed on after a step.
struct Verdict {
  double norm = 0;             ///< global gradient norm before clipping, unscaled
  bool finite = true;
  double loss_sum = 0;
  std::int64_t tokens = 0;     ///< targets that counted
  std::string_view first_bad;  ///< first parameter, in logical order, whose gradient is not finite
};

/// A number of the optimizer's own that a checkpoint keeps (loss scale, growth counter).
struct OptimizerScalar {
  std::string_view name;
  double* value = nullptr;
};

/// Precision, loss scale, the update, and the names and kinds of its state. Touches memory only through UpdateKernels.
class ESPALIER_API Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Asked before any memory exists.
  virtual Precision precision() const = 0;
  virtual Unit unit(const Parameter& parameter) const = 0;
  virtual std::span<const StateSpec> state() const = 0;
  virtual void update(const UpdateBlock& block, const StepInputs& inputs, UpdateKernels& kernels, Stream& stream) = 0;
  /// Called once after every step, with the same verdict on all ranks: moves the loss scale.
  /// @throws NumericsError when it cannot go on (scale at its minimum); the text has step history and first bad parameter.
  virtual void after(const Verdict& verdict) = 0;
  /// What backward is multiplied by in the next step; 1 where nothing is scaled.
  virtual double loss_scale() const = 0;
  /// Global numbers for the checkpoint; pointers stay valid for the life of the object.
  virtual std::vector<OptimizerScalar> scalars() = 0;
  /// One line for the log: name and hyper-parameters.
  virtual std::string description() const = 0;

 protected:
  Optimizer() = default;
};

}  // namespace espalier
