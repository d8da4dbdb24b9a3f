#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "espalier/communicator.hpp"
#include "espalier/device.hpp"
#include "espalier/kernels.hpp"

namespace espalier {

/// Working, message and accumulation types, stated by the optimizer before any memory exists.
struct Precision {
  DType working = DType::f32;     ///< weights and activations
  DType message = DType::f32;     ///< gradients on the wire between data-parallel ranks
  DType accumulate = DType::f32;  ///< gradient accumulators; FP32 for every optimizer we ship
  bool scaled_loss = false;       ///< whether loss_scale() changes over time
};

/// The kernel families of a provider. Pointers are not owned; all are set.
struct KernelSet {
  MatrixKernels* matrix = nullptr;
  AttentionKernels* attention = nullptr;
  NormKernels* norm = nullptr;
  ElementwiseKernels* elementwise = nullptr;
  LossKernels* loss = nullptr;
  UpdateKernels* update = nullptr;
  RandomKernels* random = nullptr;
};

/// What a run will ask of a backend, gathered by walking its steps dry.
struct Preparation {
  std::size_t workspace = 0;             ///< the most scratch that one call needs
  std::span<const Matmul> products;      ///< one of each shape; operands without memory
  Communicator* tensor_group = nullptr;  ///< null: none
};

/// One kind of device: its memory and streams, its kernels, and how it wraps a communicator.
class ESPALIER_API Backend {
 public:
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend();

  /// Name, instruction set and choices, for the log: "kernels_fused: AVX-512 BF16 (oneDNN 2.6.3)".
  virtual std::string description() const = 0;
  virtual Device& device() = 0;
  virtual const KernelSet& kernels() = 0;
  /// Names what is missing for this precision, or nothing. Storage without arithmetic is no reason to refuse.
  virtual Reason supports(const Precision& precision) const = 0;
  /// Before the first step: reserves scratch, chooses how products are computed. Collective over the tensor group. Work that was
  /// not announced is done all the same. Does nothing unless overridden.
  virtual void prepare(const Preparation& work);
  /// Takes an MPI communicator and returns what collectives on this device's memory need (NCCL); on the CPU the same one.
  virtual std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) = 0;

 protected:
  Backend() = default;
};

/// The built-in provider: plain loops on the CPU, the oracle every other provider is tested against.
/// @param pool  kept by reference; must outlive the backend.
ESPALIER_API std::unique_ptr<Backend> make_reference_backend(class ThreadPool& pool);

}  // namespace espalier
