#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "espalier/dtype.hpp"
#include "instruction_set.hpp"

/// oneDNN's matrix multiplication on one thread, behind a cache of ready primitives: after the first call with a shape
/// our own code makes no heap call (oneDNN may).
namespace espalier::kernels_fused {

/// One tile: dst [m, n] (+)= op(a) · op(b) [+ bias]. Strides count elements between rows as stored.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_stride = 0, b_stride = 0, dst_stride = 0;
  DType type = DType::f32;  ///< of a and b
  DType dst_type = DType::f32;
  DType bias_type = DType::f32;
  bool transpose_a = false, transpose_b = false, accumulate = false, biased = false;

  bool operator==(const GemmShape&) const = default;
};

/// "2.6.3".
const char* onednn_version();

class OneDnn {
 public:
  /// Caps oneDNN's code generator at the set, for the whole process.
  /// @param lanes  callers of run() at a time.
  /// @throws DeviceError when oneDNN has already been capped differently.
  OneDnn(InstructionSet set, int lanes);
  ~OneDnn();

  class Plan;
  /// The ready primitive of the shape; makes it at the first call. On the training thread only.
  /// @throws DeviceError with oneDNN's status.
  const Plan& prepare(const GemmShape& shape);
  /// Scratch that run() needs.
  static std::size_t scratch_bytes(const Plan& plan);
  /// On any thread, one caller a lane. scratch is 64-byte aligned.
  void run(const Plan& plan, int lane, const void* a, const void* b, const void* bias, void* dst, void* scratch);

  /// BLAS in row-major order on one thread: dst = alpha · op(a) · op(b) + beta · dst, all f32.
  static void sgemm(const GemmShape& shape, float alpha, const float* a, const float* b, float beta, float* dst);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace espalier::kernels_fused
