#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <memory>

#include "batched_gemm.hpp"
#include "device.hpp"

namespace espalier::kernels_fused::cuda {

/// Every matrix product of the plugin: cuBLASLt, FP32 sums, descriptors and algorithm kept for each shape. The
/// algorithm is the first that cuBLASLt's heuristic names, which is a function of shape, alignment, GPU and library
/// version alone: equal ranks choose alike without a word, and so does a resume. Splits along K that add rounded parts
/// are not allowed; FP32 operands are multiplied in FP32, as TF32 only when asked for.
class Gemm final : public BatchedGemm {
 public:
  /// @param device  kept by reference.
  Gemm(CudaDevice& device, bool tf32);
  ~Gemm() override;
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void multiply(const BatchedProduct& product, Stream& stream) override { multiply(product, {}, stream); }
  /// @param bias  optional [N], of dst's type, 16-byte aligned: added to each row before the one rounding.
  void multiply(const BatchedProduct& product, const View& bias, Stream& stream);

  /// Shapes met so far.
  std::size_t plans() const;

 private:
  struct Key;
  struct Plan;
  struct Plans;
  struct Call;

  Plan& plan_for(const Key& key);
  std::unique_ptr<Plan> make_plan(const Key& key) const;
  void* workspace(Stream& stream);

  CudaDevice& device_;
  cublasComputeType_t f32_compute_;
  cublasLtHandle_t handle_ = nullptr;
  std::unique_ptr<Plans> plans_;
  std::size_t workspace_bytes_;
  std::array<DeviceMemory, kLanes> workspaces_;
};

}  // namespace espalier::kernels_fused::cuda
