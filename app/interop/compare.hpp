#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "interop/safetensors.hpp"

namespace espalier::app {

/// How far one tensor is from its reference.
struct TensorError {
  std::string name;
  std::string problem;  ///< "missing", "shape [2, 3], reference [3, 2]": nothing could be compared
  double largest = 0;  ///< largest |found − reference|; infinite when one of them is not finite where the other differs
  double rms = 0;      ///< root mean square of the reference
  std::int64_t at = 0;  ///< flat index of the largest
  /// Largest error over the reference's rms; an error below 1e-8 counts as none, since gradients that are 0 in exact
  /// arithmetic are noise.
  double relative() const;
  bool above(double tolerance) const { return !problem.empty() || !(relative() <= tolerance); }
};

/// Compares `logits`, `loss` and `grad.…` of the reference with the same tensors of `found`, "transformer." in the
/// names or not; other tensors are ignored. Worst first.
/// @throws IoError when the reference has none of these tensors.
std::vector<TensorError> compare_numerics(const SafetensorsFile& found, const SafetensorsFile& reference);

/// A table, one line a tensor.
void print(std::ostream& out, const std::vector<TensorError>& errors);

}  // namespace espalier::app
