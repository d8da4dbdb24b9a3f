#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <initializer_list>

/// A product of the fake cuBLASLt: what its descriptors hold, whether it may be, and its arithmetic.
namespace fake::blas {

inline constexpr std::uint32_t kAlgorithms = 3;

/// What the opaque structures hold in the fake. They are copied like the real ones, so they hold values only.
struct Layout {
  std::int32_t type;
  std::int32_t batch;
  std::uint64_t rows, cols;
  std::int64_t ld, batch_stride;
};
struct Operation {
  std::int32_t compute, scale;
  std::int32_t transpose_a, transpose_b;
  std::int32_t epilogue, bias_type;
  void* bias;
  void* auxiliary;
  std::int64_t auxiliary_ld;
  std::int32_t auxiliary_type;
};
struct Preference {
  std::uint64_t workspace;
  std::uint32_t reductions;
  std::uint32_t alignment[4];
};
/// An algorithm is good for the problem it was made for: layouts as a checksum, alignments as promised.
struct Algorithm {
  std::uint64_t problem;
  std::uint32_t
      number;  ///< below kAlgorithms: sums in ascending order, in descending order, odd places after even ones
  std::uint64_t workspace;
  std::uint32_t alignment[4];
  std::uint32_t bias_alignment, auxiliary_alignment;  ///< of the pointers that the operation had then
};

/// What is done to a product before it is stored.
struct Epilogue {
  bool bias, gelu, gelu_gradient, sums;  ///< `sums` over the depth of B, one for each column of D
  bool auxiliary() const { return gelu || gelu_gradient; }
};
Epilogue epilogue_of(const Operation& operation);

/// What an algorithm is good for.
std::uint64_t checksum(const Operation& operation, std::initializer_list<const Layout*> layouts);

/// Whether the combination is one of those the plugin may use; the table is that of cublasLtMatmul's documentation.
cublasStatus_t judge(const Operation& operation, const Layout& a, const Layout& b, const Layout& c, const Layout& d);

/// From now on no epilogue but the bias.
void refuse_epilogues(bool refuse);

/// Ends the process where an operand is no device memory, ends too early or is less aligned than the algorithm was
/// promised.
void check_operand(const void* data, const Layout& layout, std::uint32_t alignment, const char* what);
/// The same for vectors and matrix of the epilogue.
void check_epilogue(const Operation& operation, const Algorithm& algorithm, const Layout& d);
/// What the library may count on when it is asked about a pointer; the most where none is set.
std::uint32_t alignment_of(const void* data);

/// All products of the batch.
void multiply(const Operation& operation, const Algorithm& algorithm, const Layout& a, const void* a_data,
              const Layout& b, const void* b_data, const Layout& c, const void* c_data, const Layout& d, void* d_data,
              float alpha, float beta);

}  // namespace fake::blas
