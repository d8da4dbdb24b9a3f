#include "fused_cuda_backend.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "cudnn_attention.hpp"
#include "espalier/polling.hpp"
#include "nccl_communicator.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

Settings settings_of(const ConfigView& config) {
  Settings settings;
  settings.index = static_cast<int>(config.integer("index"));
  settings.synchronous = config.boolean("synchronous");
  settings.tf32 = config.boolean("tf32");
  settings.epilogues = config.boolean("epilogues");
  settings.timed_plans = config.string("plans") == "timed";
  settings.own_attention = config.string("attention") == "own";
  settings.always_nccl = config.string("nccl") == "always";
  settings.graphs = config.boolean("graphs");
  return settings;
}

const Settings& checked(const Settings& settings) {
  if (settings.graphs && settings.synchronous) {
    throw ConfigError(
        "backend.graphs and backend.synchronous are both true: a CUDA graph goes out whole, nothing can wait after "
        "each of "
        "its kernels; set one of them to false");
  }
  return settings;
}

std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// cuBLASLt numbers 13.1.0 as 130100.
std::string blas_version(std::size_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

/// NCCL numbers 2.28.9 as 22809.
std::string nccl_version() {
  int number = 0;
  ncclGetVersion(&number);
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

}  // namespace

FusedCudaBackend::FusedCudaBackend(const ConfigView& config, HostContext& host)
    : FusedCudaBackend(
          settings_of(config), [&host](const std::string& text) { host.log(LogLevel::info, text); },
          [&host](const std::string& text) { host.log(LogLevel::warning, text); }) {}

FusedCudaBackend::FusedCudaBackend(const Settings& settings, const ChosenAttention::Log& log, const Gemm::Log& warn)
    : device_(checked(settings).index),
      scratch_(device_),
      gemm_(device_, {.tf32 = settings.tf32, .timed = settings.timed_plans}, log, warn),
      matrix_(device_, gemm_, scratch_, settings.epilogues),
      own_attention_(gemm_, scratch_),
      attention_(own_attention_, settings.own_attention ? nullptr : make_cudnn_attention(scratch_), log),
      norm_(scratch_),
      elementwise_(scratch_),
      update_(gemm_, scratch_),
      kernels_{&matrix_, &attention_, &norm_, &elementwise_, &loss_, &update_, &random_},
      always_nccl_(settings.always_nccl) {
  synchronous_launches = settings.synchronous;
  if (settings.graphs) device_.use_graphs(log);
  set_poll_hook([](void*) { poll_nccl(); }, nullptr);
}

FusedCudaBackend::~FusedCudaBackend() {
  set_poll_hook(nullptr, nullptr);
  device_.stop_graphs();
}

std::string FusedCudaBackend::description() const {
  const GpuFacts& gpu = device_.facts();
  std::string text = "kernels_fused_cuda: " + gpu.name + " (" + std::string(device_.name()) + " of " +
                     std::to_string(gpu.count) + ", " + gpu.bus + ", sm_" + std::to_string(gpu.major) +
                     std::to_string(gpu.minor) + ", " + std::to_string(gpu.bytes >> 30) + " GiB";
  if (gpu.count > 1) {
    text += ", direct access to " + std::to_string(gpu.peers) + " of " + std::to_string(gpu.count - 1) + " others";
  }
  text += "), CUDA " + cuda_version(gpu.runtime) + " (driver " + cuda_version(gpu.driver) + "), cuBLASLt " +
          blas_version(cublasLtGetVersion()) + ", NCCL " + nccl_version();
  if (always_nccl_) text += " for groups of one, too";
  if (synchronous_launches) text += ", waiting after every kernel";
  if (device_.graphs() != nullptr) text += ", repeated work as CUDA graphs";
  return text;
}

Reason FusedCudaBackend::supports(const Precision& precision) const {
  for (const DType dtype : {precision.working, precision.message, precision.accumulate}) {
    if (Reason reason = matrix_.supports(dtype)) return reason;
  }
  if (precision.accumulate != DType::f32) {
    return "kernels_fused_cuda: gradients accumulate in f32, not in " + std::string(name_of(precision.accumulate));
  }
  return {};
}

void FusedCudaBackend::prepare(const Preparation& work) {
  scratch_.reserve(std::max(work.workspace, CudaUpdate::workspace()), device_.lane(Lane::compute));
  std::vector<ProductKey> keys;
  for (const Matmul& product : work.products) {
    if (!product.dst.empty() && !product.a.empty()) keys.push_back(CudaMatrix::key_of(product));
  }
  gemm_.prepare(keys, work.tensor_group,
                [this](const View& operand, Stream& stream) { random_.normal(operand, {}, 0, 0.0, 1.0, stream); });
}

std::unique_ptr<Communicator> FusedCudaBackend::wrap(std::unique_ptr<Communicator> communicator) {
  if (communicator->size() > 1 || always_nccl_) device_.while_waiting(poll_nccl);
  return std::make_unique<NcclCommunicator>(device_, std::move(communicator), always_nccl_);
}

}  // namespace espalier::kernels_fused::cuda
