#include "device.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "check.hpp"
#include "environment.hpp"
#include "espalier/communicator.hpp"
#include "espalier/error.hpp"
#include "images.hpp"
#include "staging.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int count_gpus() {
  int count = 0;  // a failing call leaves it alone
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const std::string has = driver == 0 ? "no driver is loaded" : "the driver's CUDA version is " + version_text(driver);
  const std::string advice =
      driver == 0                            ? "install NVIDIA's driver"
      : error == cudaErrorInsufficientDriver ? "install a driver of CUDA " + version_text(runtime) + " or newer"
      : error == cudaErrorSystemNotReady     ? "start the service that links the GPUs (nvidia-fabricmanager)"
                                             : "look at nvidia-smi and CUDA_VISIBLE_DEVICES";
  throw DeviceError(
      "no CUDA device: " + std::string(error == cudaSuccess ? "none is visible" : cudaGetErrorString(error)) + " (" +
      has + ", the plugin needs " + version_text(runtime) + "); " + advice + ", or set backend.device = \"cpu\"");
}

/// The rank's own GPU: by its number on the host, or the only one there is (a launcher may show each rank its own).
int choose_gpu(int index, int count) {
  if (index >= count) {
    throw ConfigError("backend.index: there is no GPU " + std::to_string(index) + "; this process sees " +
                      std::to_string(count));
  }
  if (index >= 0) return index;
  const Launch launch = detect_launch();
  if (count == 1) return 0;
  if (launch.local_rank >= count) {
    throw DeviceError("no CUDA device for local rank " + std::to_string(launch.local_rank) + ": this host has " +
                      std::to_string(count) + " GPUs and " + std::to_string(launch.local_size) +
                      " ranks; start at most one rank a GPU");
  }
  return launch.local_rank;
}

GpuFacts look_at(int index, int count) {
  GpuFacts facts;
  facts.index = index;
  facts.count = count;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "properties of a GPU");
  facts.name = properties.name;
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.bytes = properties.totalGlobalMem;
  char bus[32] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, index), "PCI address of a GPU");
  facts.bus = bus;
  for (int other = 0; other < count; ++other) {
    int reaches = 0;
    if (other != index) check(cudaDeviceCanAccessPeer(&reaches, index, other), "link between GPUs");
    facts.peers += reaches;
  }
  check(cudaDriverGetVersion(&facts.driver), "version of the driver");
  check(cudaRuntimeGetVersion(&facts.runtime), "version of the CUDA runtime");
  return facts;
}

/// An older GPU than the kernels were compiled for, and one that is too new for the driver to compile them for, would
/// show at the first kernel, far from here.
void require_kernels(const GpuFacts& facts, const std::string& name) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, any_kernel());
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw DeviceError(name + ": " + facts.name + " (compute capability " + std::to_string(facts.major) + "." +
                    std::to_string(facts.minor) + ") cannot run the plugin's kernels: " + cudaGetErrorString(error) +
                    " (CUDA error " + std::to_string(static_cast<int>(error)) + "); they were compiled for " +
                    compiled_for() +
                    ": choose another GPU, build with this one in CMAKE_CUDA_ARCHITECTURES, or, if it is " +
                    "newer than those, take a driver of CUDA " + version_text(facts.runtime) + " or newer");
}

/// Of work from before, whose name is lost.
void check_work(cudaError_t status) {
  if (status == cudaSuccess) return;
  const char* const advice =
      status == cudaErrorECCUncorrectable ? "; the GPU's memory fails: look at nvidia-smi -q -d ECC"
      : synchronous_launches              ? ""
                                          : "; it is of work queued before: backend.synchronous = true names it";
  throw DeviceError("cuda: waiting for a stream: " + std::string(cudaGetErrorString(status)) + " (CUDA error " +
                    std::to_string(static_cast<int>(status)) + ")" + advice);
}

enum class Side : std::uint8_t { pageable, pinned, device };

Side side_of(const void* data) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "kind of a pointer");
  switch (attributes.type) {
    case cudaMemoryTypeDevice:
    case cudaMemoryTypeManaged:
      return Side::device;
    case cudaMemoryTypeHost:
      return Side::pinned;
    default:
      return Side::pageable;
  }
}

}  // namespace

CudaDevice::CudaDevice(int index) {
  prepare_environment();
  const int count = count_gpus();
  const int chosen = choose_gpu(index, count);
  check(cudaSetDevice(chosen), "choice of a GPU");
  facts_ = look_at(chosen, count);
  name_ = "cuda:" + std::to_string(chosen);
  require_kernels(facts_, name_);
  // Communication goes first where both could run: what waits for it is usually the longer way.
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
  for (int i = 0; i < kLanes; ++i) {
    const bool computes = static_cast<Lane>(i) == Lane::compute;
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, computes ? least : greatest), "stream");
    lanes_[static_cast<std::size_t>(i)] = std::make_unique<CudaStream>(stream);
  }
  for (cudaEvent_t& event : events_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  staging_ = std::make_unique<Staging>();
}

CudaDevice::~CudaDevice() {
  stop_graphs();
  for (const auto& lane : lanes_) cudaStreamSynchronize(handle(*lane));
  staging_.reset();
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  for (const auto& lane : lanes_) cudaStreamDestroy(handle(*lane));
}

void CudaDevice::use_graphs(Graphs::Log log, Graphs::Limits limits) {
  auto& compute = *lanes_[static_cast<std::size_t>(Lane::compute)];
  graphs_ = std::make_unique<Graphs>(handle(compute), std::move(log), limits);
  compute.record_with(graphs_.get());
}

void CudaDevice::stop_graphs() noexcept {
  if (graphs_ == nullptr) return;
  lanes_[static_cast<std::size_t>(Lane::compute)]->record_with(nullptr);
  graphs_.reset();
}

void CudaDevice::send() {
  if (graphs_ != nullptr) graphs_->send();
}

DeviceMemory CudaDevice::reserve(std::size_t bytes, std::string_view purpose) {
  if (bytes == 0) return {};
  send();
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "free memory");
    throw DeviceError(name_ + ": cannot reserve " + std::to_string(bytes) + " bytes for " + std::string(purpose) +
                      ": " + std::to_string(free) + " of " + std::to_string(total) +
                      " bytes are free; use a smaller model or micro-batch, more recomputation, or more ranks");
  }
  check(error, "memory");
  DeviceMemory memory = count(data, bytes, purpose, false);
  // Zero before anybody has it, whatever lane uses it first.
  Stream& stream = lane(Lane::copy);
  check(cudaMemsetAsync(data, 0, bytes, handle(stream)), "zeros in new memory");
  wait(stream);
  return memory;
}

DeviceMemory CudaDevice::reserve_near_host(std::size_t bytes, std::string_view purpose) {
  if (bytes == 0) return {};
  send();
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocMapped);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw DeviceError(name_ + ": cannot pin " + std::to_string(bytes) + " bytes of host memory for " +
                      std::string(purpose) + "; use more ranks, or leave the offload out");
  }
  check(error, "pinned memory");
  std::memset(data, 0, bytes);
  return count(data, bytes, purpose, true);
}

DeviceMemory CudaDevice::count(void* data, std::size_t bytes, std::string_view purpose, bool pinned) {
  auto use = std::find_if(use_.begin(), use_.end(), [&](const MemoryUse& one) { return one.purpose == purpose; });
  if (use == use_.end()) use = use_.insert(use_.end(), {std::string(purpose), 0, 0});
  use->bytes += bytes;
  use->peak = std::max(use->peak, use->bytes);
  blocks_[data] = {static_cast<std::size_t>(use - use_.begin()), pinned};
  return {this, data, bytes};
}

void CudaDevice::release(void* data, std::size_t bytes) noexcept {
  const auto block = blocks_.find(data);
  ESPALIER_ASSERT(block != blocks_.end());
  use_[block->second.purpose].bytes -= bytes;
  // An error here is one of earlier work, and shows at the next call that can tell.
  if (graphs_ != nullptr) graphs_->send_quietly();
  if (block->second.pinned) {
    cudaFreeHost(data);
  } else {
    cudaFree(data);
  }
  blocks_.erase(block);
}

// A wait is for the record that was the newest when it was queued, so an event may be recorded again at once; a pool
// keeps the streams from serialising on one.
void CudaDevice::order(Stream& first, Stream& then) {
  if (&first == &then) return;
  const cudaEvent_t event = events_[next_event_++ % events_.size()];
  check(cudaEventRecord(event, handle(first)), "event");
  check(cudaStreamWaitEvent(handle(then), event, 0), "event");
}

void CudaDevice::copy(const View& from, const View& to, Stream& stream) {
  ESPALIER_ASSERT(from.rows == to.rows && from.cols == to.cols && from.dtype == to.dtype);
  if (from.empty() || from.data == to.data) return;
  const Side source = side_of(from.data);
  const Side target = side_of(to.data);
  if (source == Side::pageable && target == Side::device && staging_->to_device(from, to, handle(stream))) return;
  if (source == Side::device && target == Side::pageable && staging_->to_host(from, to, handle(stream))) return;
  if (source == Side::device && target == Side::device) {
    handle(stream).run([from, to](cudaStream_t queue) { copy_async(from, to, queue); });
    return;
  }
  copy_async(from, to, handle(stream));
}

void CudaDevice::fill_zero(const View& view, Stream& stream) {
  if (view.empty()) return;
  handle(stream).run([view](cudaStream_t queue) {
    if (view.contiguous()) {
      check(cudaMemsetAsync(view.data, 0, view.bytes(), queue), "zeros");
      return;
    }
    const std::size_t unit = size_of(view.dtype);
    check(cudaMemset2DAsync(view.data, static_cast<std::size_t>(view.row_stride) * unit, 0,
                            static_cast<std::size_t>(view.cols) * unit, static_cast<std::size_t>(view.rows), queue),
          "zeros");
  });
}

// Work that waits for another rank may wait for ever: where there are other ranks the host asks how they are meanwhile.
void CudaDevice::wait(Stream& stream) {
  send();  // whichever stream it is: nobody waits while work lies about
  cudaError_t status = poll_ == nullptr ? cudaStreamSynchronize(handle(stream)) : cudaStreamQuery(handle(stream));
  for (int turns = 1; status == cudaErrorNotReady; ++turns) {
    cudaGetLastError();  // it is no error, but stays behind as one
    poll_();
    if (turns % 16 == 0) sched_yield();  // to whoever else has work on this core
    status = cudaStreamQuery(handle(stream));
  }
  check_work(status);
}

}  // namespace espalier::kernels_fused::cuda
