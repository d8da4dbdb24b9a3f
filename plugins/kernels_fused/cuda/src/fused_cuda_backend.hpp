#pragma once

#include <limits>
#include <memory>

#include "attention.hpp"
#include "chosen_attention.hpp"
#include "device.hpp"
#include "elementwise.hpp"
#include "espalier/backend.hpp"
#include "espalier/config.hpp"
#include "espalier/host.hpp"
#include "gemm.hpp"
#include "loss.hpp"
#include "matrix.hpp"
#include "norm.hpp"
#include "random.hpp"
#include "scratch.hpp"
#include "update.hpp"

namespace espalier::kernels_fused::cuda {

inline constexpr OptionSpec kOptions[] = {
    {"index", OptionType::integer, "-1", "which GPU of those the process sees; -1: by the rank on its host", -1, 1023},
    {"synchronous", OptionType::boolean, "false",
     "wait after every kernel, so that a failure names the kernel it happened in (slow)"},
    {"tf32", OptionType::boolean, "false",
     "multiply FP32 matrices as TF32 (10 bits of mantissa); BF16 and FP16 are not concerned"},
    {"epilogues", OptionType::boolean, "true",
     "have cuBLASLt compute GELU, its gradient and bias gradients in the same pass as products, where it can"},
    {"plans", OptionType::string, "\"heuristic\"",
     "algorithms of matrix products: the first that cuBLASLt's heuristic names; timed: the fastest of eight, measured "
     "before the first "
     "step",
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), "heuristic|timed"},
    {"attention", OptionType::string, "\"auto\"",
     "auto: cuDNN where it is built in and takes the shape, else own kernels; own: own kernels always",
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), "auto|own"},
    {"nccl", OptionType::string, "\"auto\"",
     "auto: groups of one GPU need no NCCL; always: they communicate through it, too (to try it on one GPU)",
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), "auto|always"},
    {"graphs", OptionType::boolean, "false",
     "send work that repeats (a micro-batch, or what lies between two communications of it) as one CUDA graph"},
};

struct Settings {
  int index = -1;
  bool synchronous = false;
  bool tf32 = false;
  bool epilogues = true;
  bool timed_plans = false;
  bool own_attention = false;
  bool always_nccl = false;
  bool graphs = false;  ///< not together with synchronous
};

/// The GPU provider: cuBLASLt for matrices, own kernels for the rest.
class FusedCudaBackend final : public Backend {
 public:
  FusedCudaBackend(const ConfigView& config, HostContext& host);
  /// @throws DeviceError when there is no GPU, ConfigError when settings exclude each other.
  /// @param log  gets which attention is used, and why; what became of graphs; how products are computed.
  /// @param warn  gets what goes otherwise than asked.
  explicit FusedCudaBackend(const Settings& settings, const ChosenAttention::Log& log = {}, const Gemm::Log& warn = {});
  ~FusedCudaBackend() override;

  std::string description() const override;
  Device& device() override { return device_; }
  const KernelSet& kernels() override { return kernels_; }
  Reason supports(const Precision& precision) const override;
  void prepare(const Preparation& work) override;
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> communicator) override;

  Gemm& gemm() { return gemm_; }
  const Graphs* graphs() const { return device_.graphs(); }

 private:
  CudaDevice device_;
  Scratch scratch_;
  Gemm gemm_;
  CudaMatrix matrix_;
  CudaAttention own_attention_;
  ChosenAttention attention_;
  CudaNorm norm_;
  CudaElementwise elementwise_;
  CudaLoss loss_;
  CudaUpdate update_;
  CudaRandom random_;
  KernelSet kernels_;
  bool always_nccl_;
};

}  // namespace espalier::kernels_fused::cuda
