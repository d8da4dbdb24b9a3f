#pragma once

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "batched_gemm.hpp"

namespace espalier::kernels_fused::cuda {

/// What a product does besides, in the same pass; of cuBLASLt's epilogues one at most, or `gelu` with `bias`. FP32
/// until each result is rounded once: dst, and gelu of what dst was before its rounding.
struct Extras {
  View bias;      ///< [N], dst's type, 16-byte aligned: added to each row
  View gelu;      ///< [M, N], dst's type: gelu(dst) in its tanh form; dst keeps what goes in
  View gelu_src;  ///< [M, N], dst's type: dst is multiplied by gelu'(gelu_src)
  View sum_a;     ///< [M], dst's type, 16-byte aligned: Σ_k op(a), overwritten
};

/// Views may lack memory where only the shape counts.
inline bool present(const View& view) { return !view.empty(); }

/// Throws DeviceError with cuBLASLt's own text.
void check_blas(cublasStatus_t status, const std::string& what);

/// A product as numbers only: equal keys, equal plans. Whether dst is added to does not matter to cuBLASLt. Alignment
/// is what cuBLASLt can use of it, up to 16 bytes; operands without memory count as aligned, which those of a training
/// are, so that what was announced is found again.
struct ProductKey {
  enum Extra : std::uint32_t { kBias = 1, kGelu = 2, kGeluSource = 4, kSum = 8 };
  static constexpr std::uint32_t kAlignment = 16;

  std::array<std::int64_t, 13> numbers{};
  bool operator==(const ProductKey&) const = default;
  static ProductKey of(const BatchedProduct& product, const Extras& extras);

  DType source() const { return static_cast<DType>(numbers[0] & 15); }
  DType target() const { return static_cast<DType>(numbers[0] >> 4 & 15); }
  bool transpose_a() const { return (numbers[0] >> 8 & 1) != 0; }
  bool transpose_b() const { return (numbers[0] >> 9 & 1) != 0; }
  std::uint32_t extras() const { return static_cast<std::uint32_t>(numbers[0] >> 10 & 15); }
  /// @param operand  0: a, 1: b, 2: what cuBLASLt calls D, 3: its auxiliary matrix
  std::uint32_t alignment(int operand) const { return static_cast<std::uint32_t>(numbers[1] >> 8 * operand & 255); }
  std::int64_t m() const { return numbers[2]; }
  std::int64_t n() const { return numbers[3]; }
  std::int64_t k() const { return numbers[4]; }
  std::int64_t row_stride(int operand) const { return numbers[static_cast<std::size_t>(5 + operand)]; }
  std::int64_t count() const { return numbers[8]; }
  std::int64_t batch_stride(int operand) const { return numbers[static_cast<std::size_t>(9 + operand)]; }
  std::int64_t auxiliary_stride() const { return numbers[12]; }

  std::string text() const;
  /// What it does besides, as words: "GELU".
  std::string extras_text() const;
  std::size_t hash() const;
};

/// Descriptors of cuBLASLt for one key. Row-major matrices are column-major ones transposed, so cuBLASLt computes
/// dstᵀ = op(b)ᵀ · op(a)ᵀ: its A is our b, its B our a, and sums over its B's depth are those of our a. With `gelu` its
/// D is gelu's matrix and its auxiliary one is dst.
class ProductPlan {
 public:
  /// @param f32_compute  of FP32 operands.
  ProductPlan(const ProductKey& key, cublasComputeType_t f32_compute);
  ProductPlan(const ProductPlan&) = delete;
  ProductPlan& operator=(const ProductPlan&) = delete;
  ~ProductPlan();

  /// At most `most` algorithms, the heuristic's favourite first; none where cuBLASLt has none or refuses, for which
  /// `status` has its reason.
  std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, std::size_t workspace, int most,
                                               cublasStatus_t& status) const;
  /// Whether this GPU and library run the algorithm within the workspace.
  bool takes(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& candidate, std::size_t workspace) const;
  /// Sets what is not part of the shape.
  /// @param vector     where bias or sums lie, if the product has them
  /// @param auxiliary  where what GELU starts from lies, if the product has it
  void point(void* vector, void* auxiliary);

  ProductKey key;
  std::string text;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, dst = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;        ///< `algorithm` is set
  bool announced = false;    ///< a training's own: kept when others go
  std::uint64_t number = 0;  ///< no other plan has it
  std::uint64_t last_use = 0;

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check_blas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), text);
  }
  void set_extras();
  void layout(cublasLtMatrixLayout_t& to, DType type, std::int64_t rows, std::int64_t columns, int operand);
  void destroy();
};

}  // namespace espalier::kernels_fused::cuda
