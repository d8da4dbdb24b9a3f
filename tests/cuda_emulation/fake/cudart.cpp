// The calls of the CUDA runtime that the plugin makes, over fake/queue and fake/memory.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "state.hpp"

namespace {

using fake::Place;

cudaError_t last_error = cudaSuccess;
int current_device = 0;

using fake::fail;

/// What every call returns that has nothing else to say: errors of earlier work stick.
cudaError_t status() {
  const cudaError_t error = fake::sticky_error();
  return error == cudaSuccess ? cudaSuccess : fail(error);
}

/// The same of a call that puts work on a stream.
cudaError_t status(cudaStream_t stream) {
  if (stream->capture != nullptr && !stream->capture->valid) return fail(cudaErrorStreamCaptureInvalidated);
  return status();
}

/// Whether the call waits for a stream that captures, which spoils the capture.
bool waits_for_capture(cudaStream_t stream) { return stream->capture != nullptr && fake::forbidden_in_capture(); }

int device_count() {
  const char* text = std::getenv("ESPALIER_FAKE_CUDA_DEVICES");
  return text != nullptr ? std::atoi(text) : 1;
}

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}
/// Compute capability times ten.
int capability() { return number_from("ESPALIER_FAKE_CUDA_CAPABILITY", 80); }
/// CUDA version of the driver, 0 for none.
int driver() { return device_count() == 0 ? 0 : number_from("ESPALIER_FAKE_CUDA_DRIVER", CUDART_VERSION); }

/// Bytes of rows that are `pitch` apart, from the first to the last.
std::size_t extent(std::size_t pitch, std::size_t width, std::size_t height) {
  return height == 0 || width == 0 ? 0 : (height - 1) * pitch + width;
}

void copy_rows(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch, std::size_t width,
               std::size_t height) {
  for (std::size_t row = 0; row < height; ++row) {
    std::memmove(static_cast<std::byte*>(dst) + row * dst_pitch, static_cast<const std::byte*>(src) + row * src_pitch,
                 width);
  }
}

/// Pageable sources are staged when the call is made; pinned ones are read when the stream gets there. Targets are
/// written then, pageable ones, too: that the real call may wait for them is nothing to rely on.
cudaError_t queue_copy(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch, std::size_t width,
                       std::size_t height, cudaStream_t stream) {
  if (width > dst_pitch || width > src_pitch) return fail(cudaErrorInvalidPitchValue);
  fake::check_stream(stream, "copy");
  fake::check_range(dst, extent(dst_pitch, width, height), "target of a copy");
  fake::check_range(src, extent(src_pitch, width, height), "source of a copy");
  if (fake::place_of(src) != Place::pageable) {
    fake::enqueue(stream, "copy", [=] {
      fake::check_range(src, extent(src_pitch, width, height), "source of a copy that was queued before it was freed");
      copy_rows(dst, dst_pitch, src, src_pitch, width, height);
      return true;
    });
    return status(stream);
  }
  if (stream->capture != nullptr)
    fake::violation("a captured copy from pageable memory, which each launch would read again");
  auto staged = std::make_shared<std::vector<std::byte>>(width * height);
  copy_rows(staged->data(), width, src, src_pitch, width, height);
  fake::enqueue(stream, "copy", [=] {
    copy_rows(dst, dst_pitch, staged->data(), width, width, height);
    return true;
  });
  return status(stream);
}

}  // namespace

namespace fake {

cudaError_t fail(cudaError_t error) { return last_error = error; }

}  // namespace fake

extern "C" {

// --- devices ---

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  const int devices = device_count();
  // Leaves the count alone, as the real one does. A driver of the same major version is new enough.
  if (driver() / 1000 < CUDART_VERSION / 1000) return fail(cudaErrorInsufficientDriver);
  *count = devices;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  current_device = device;
  return status();
}

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  *device = current_device;
  return status();
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  *properties = cudaDeviceProp{};
  std::snprintf(properties->name, sizeof properties->name, "Emulated GPU");
  properties->totalGlobalMem = fake::device_bytes_total();
  properties->major = capability() / 10;
  properties->minor = capability() % 10;
  properties->multiProcessorCount = 108;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 163 << 10;
  return status();
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 108;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 163 << 10;
      break;
    default:
      return fail(cudaErrorInvalidValue);
  }
  return status();
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return status();
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return status();
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  *version = driver();
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = fake::device_bytes_free();
  *total = fake::device_bytes_total();
  return status();
}

cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  if (fake::forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  fake::run_all();
  return status();
}

cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  if (capability() < 80) return fail(cudaErrorNoKernelImageForDevice);
  *attributes = cudaFuncAttributes{};
  return status();
}

// --- errors ---

cudaError_t CUDARTAPI cudaGetLastError() {
  status();
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t CUDARTAPI cudaPeekAtLastError() {
  status();
  return last_error;
}

const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    default:
      return "cudaError";
  }
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    default:
      return "error of the fake runtime";
  }
}

// --- memory ---

cudaError_t CUDARTAPI cudaMalloc(void** data, std::size_t bytes) {
  if (fake::forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  *data = nullptr;
  if (bytes == 0) return status();
  *data = fake::allocate_device(bytes);
  return *data == nullptr ? fail(cudaErrorMemoryAllocation) : status();
}

cudaError_t CUDARTAPI cudaFree(void* data) {
  if (fake::forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  if (data != nullptr && !fake::free_device(data)) fake::violation("cudaFree: no live reservation starts there");
  return status();
}

cudaError_t CUDARTAPI cudaHostAlloc(void** data, std::size_t bytes, unsigned int) {
  if (fake::forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  *data = fake::allocate_pinned(bytes);
  return *data == nullptr ? fail(cudaErrorMemoryAllocation) : status();
}

cudaError_t CUDARTAPI cudaFreeHost(void* data) {
  if (fake::forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  if (data != nullptr && !fake::free_pinned(data)) fake::violation("cudaFreeHost: no pinned memory starts there");
  return status();
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  *attributes = cudaPointerAttributes{};
  attributes->device = current_device;
  switch (fake::place_of(data)) {
    case Place::device:
      attributes->type = cudaMemoryTypeDevice;
      attributes->devicePointer = const_cast<void*>(data);
      break;
    case Place::pinned:
      attributes->type = cudaMemoryTypeHost;
      attributes->hostPointer = attributes->devicePointer = const_cast<void*>(data);
      break;
    case Place::pageable:
      attributes->type = cudaMemoryTypeUnregistered;
      break;
  }
  return status();
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind,
                                      cudaStream_t stream) {
  return queue_copy(dst, bytes, src, bytes, bytes, 1, stream);
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
                                        std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
  return queue_copy(dst, dst_pitch, src, src_pitch, width, height, stream);
}

cudaError_t CUDARTAPI cudaMemset2DAsync(void* data, std::size_t pitch, int value, std::size_t width, std::size_t height,
                                        cudaStream_t stream) {
  fake::check_range(data, extent(pitch, width, height), "target of a memset");
  fake::enqueue(stream, "memset", [=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memset(static_cast<std::byte*>(data) + row * pitch, value, width);
    return true;
  });
  return status(stream);
}

cudaError_t CUDARTAPI cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return cudaMemset2DAsync(data, bytes, value, bytes, 1, stream);
}

// --- streams and events ---

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (flags != cudaStreamNonBlocking) fake::violation("a stream that waits for the default stream");
  *stream = fake::make_stream();
  return status();
}

cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return status();
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  fake::check_stream(stream, "cudaStreamDestroy");
  if (waits_for_capture(stream)) return fail(cudaErrorStreamCaptureUnsupported);
  fake::drop_stream(stream);
  return status();
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  fake::check_stream(stream, "cudaStreamSynchronize");
  if (waits_for_capture(stream)) return fail(cudaErrorStreamCaptureUnsupported);
  fake::run_until_idle(stream);
  return status();
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
  fake::check_stream(stream, "cudaStreamQuery");
  if (waits_for_capture(stream)) return fail(cudaErrorStreamCaptureUnsupported);
  fake::progress();
  const cudaError_t error = status();
  return error != cudaSuccess || fake::is_idle(stream) ? error : fail(cudaErrorNotReady);
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  fake::check_event(event, "cudaStreamWaitEvent");
  fake::check_stream(stream, "cudaStreamWaitEvent");
  if (event->state->captured) {
    if (stream->capture != nullptr) return status(stream);  // in order in any case
    fake::violation("cudaStreamWaitEvent: a capture that another stream joins, which the fake has not");
  }
  if (stream->capture != nullptr) {
    stream->capture->valid = false;
    return fail(cudaErrorStreamCaptureIsolation);
  }
  fake::wait_event(stream, event);
  return status();
}

cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  fake::enqueue_host(stream, "host function", [=] {
    function(data);
    return true;
  });
  return status(stream);
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = fake::make_event();
  return status();
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  fake::check_event(event, "cudaEventDestroy");
  fake::drop_event(event);
  return status();
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  fake::check_event(event, "cudaEventRecord");
  fake::check_stream(stream, "cudaEventRecord");
  fake::record(event, stream);
  return status(stream);
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  fake::check_event(event, "cudaEventQuery");
  if (event->state->captured) return fail(cudaErrorCapturedEvent);
  if (fake::forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  fake::progress();
  const cudaError_t error = status();
  return error != cudaSuccess || fake::is_done(event) ? error : fail(cudaErrorNotReady);
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  fake::check_event(event, "cudaEventSynchronize");
  if (event->state->captured) return fail(cudaErrorCapturedEvent);
  if (fake::forbidden_in_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  fake::run_until_done(event);
  return status();
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = static_cast<float>(end->state->passed - begin->state->passed);
  return status();
}

}  // extern "C"
