#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "batched_gemm.hpp"
#include "device.hpp"
#include "espalier/communicator.hpp"
#include "product_plan.hpp"

namespace espalier::kernels_fused::cuda {

struct GemmOptions {
  bool tf32 = false;
  bool timed = false;             ///< prepare() measures algorithms
  std::size_t most_plans = 4096;  ///< kept; the least recently used half goes when there are more
};

/// Every matrix product of the plugin: cuBLASLt, FP32 sums, descriptors and algorithm kept for each shape. The
/// algorithm is the first that cuBLASLt's heuristic names, which is a function of shape, alignment, GPU and library
/// version alone, or for announced products the fastest of some; these are chosen by the first rank of a tensor group
/// for all of it. Splits along K that add rounded parts are not allowed; FP32 operands are multiplied in FP32, as TF32
/// only when asked for.
class Gemm final : public BatchedGemm {
 public:
  using Log = std::function<void(const std::string&)>;
  /// @param device  kept by reference.
  /// @param log     gets a line for each kind of product that cuBLASLt does not do in one pass, and how plans were
  /// chosen
  /// @param warn    gets what went otherwise than asked
  explicit Gemm(CudaDevice& device, GemmOptions options = {}, Log log = {}, Log warn = {});
  ~Gemm() override;
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void multiply(const BatchedProduct& product, Stream& stream) override { multiply(product, {}, stream); }
  /// @param extras  what fuses() takes.
  void multiply(const BatchedProduct& product, const Extras& extras, Stream& stream);

  /// Whether cuBLASLt does the product with its extras in one pass: its documented rules for types and leading
  /// dimensions hold and its heuristic names an algorithm. Views may lack memory.
  bool fuses(const BatchedProduct& product, const Extras& extras);

  /// Fills an operand with numbers like those of a training: zeros would be multiplied at another clock rate.
  using Fill = std::function<void(const View&, Stream&)>;
  /// Chooses the algorithms of the products of a training, before its first step. The first rank of the group chooses,
  /// with options.timed by measuring on operands of these shapes, and the others take its choice where their GPU runs
  /// it. Collective over the group. The plans stay.
  /// @param group  a tensor group of this device's communicators, or null.
  void prepare(std::span<const ProductKey> products, Communicator* group, const Fill& fill);

  /// Plans kept now.
  std::size_t plans() const { return plans_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const ProductKey& key) const { return key.hash(); }
  };

  /// The plan for the key, which may have no algorithm.
  ProductPlan& find_plan(const ProductKey& key);
  void make_room();
  struct Choice;
  struct Operands;
  std::string time_plans(std::span<ProductPlan* const> plans, const Fill& fill);
  std::vector<float> measure(ProductPlan& plan, std::span<const cublasLtMatmulAlgo_t> candidates,
                             const Operands& operands);
  void agree(std::span<ProductPlan* const> plans, Communicator& group);
  void say_unfused(const ProductKey& key, const std::string& why);
  void* workspace(Stream& stream);

  CudaDevice& device_;
  GemmOptions options_;
  Log log_, warn_;
  cublasLtHandle_t handle_ = nullptr;
  std::unordered_map<ProductKey, std::unique_ptr<ProductPlan>, Hash> plans_;
  std::uint64_t uses_ = 0;
  std::uint64_t made_ = 0;
  std::set<std::string> said_;
  std::size_t workspace_bytes_;
  std::array<DeviceMemory, kLanes> workspaces_;
};

}  // namespace espalier::kernels_fused::cuda
