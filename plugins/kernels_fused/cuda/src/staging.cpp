#include "staging.hpp"

#include <cstring>

#include "check.hpp"

namespace espalier::kernels_fused::cuda {
namespace {

void copy_rows(const View& from, const View& to) {
  const std::size_t row_bytes = static_cast<std::size_t>(from.cols) * size_of(from.dtype);
  for (std::int64_t r = 0; r < from.rows; ++r) std::memcpy(to.at(r, 0), from.at(r, 0), row_bytes);
}

}  // namespace

void copy_async(const View& from, const View& to, cudaStream_t stream) {
  const std::size_t unit = size_of(from.dtype);
  if (from.contiguous() && to.contiguous()) {  // a pitch has 31 bits, a vector may be longer
    check(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, stream), "copy");
    return;
  }
  check(cudaMemcpy2DAsync(to.data, static_cast<std::size_t>(to.row_stride) * unit, from.data,
                          static_cast<std::size_t>(from.row_stride) * unit, static_cast<std::size_t>(from.cols) * unit,
                          static_cast<std::size_t>(from.rows), cudaMemcpyDefault, stream),
        "copy");
}

Staging::Staging() {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, kSlots * kSlotBytes, cudaHostAllocDefault), "pinned memory for copies");
  memory_ = static_cast<std::byte*>(memory);
  for (std::size_t i = 0; i < kSlots; ++i) {
    slots_[i].data = memory_ + i * kSlotBytes;
    check(cudaEventCreateWithFlags(&slots_[i].passed, cudaEventDisableTiming), "event");
  }
}

Staging::~Staging() {
  for (Slot& slot : slots_) {
    if (slot.passed != nullptr) cudaEventDestroy(slot.passed);
  }
  cudaFreeHost(memory_);
}

Staging::Slot* Staging::free_slot(std::size_t bytes) {
  if (bytes > kSlotBytes) return nullptr;
  for (Slot& slot : slots_) {
    const cudaError_t state = cudaEventQuery(slot.passed);
    if (state == cudaSuccess) return &slot;
    if (state != cudaErrorNotReady) check(state, "copy");
    cudaGetLastError();  // "not ready" is noted as an error, too
  }
  return nullptr;
}

bool Staging::to_device(const View& host, const View& device, cudaStream_t stream) {
  Slot* slot = free_slot(host.bytes());
  if (slot == nullptr) return false;
  const View packed = View::matrix(slot->data, host.rows, host.cols, host.dtype);
  copy_rows(host, packed);
  copy_async(packed, device, stream);
  check(cudaEventRecord(slot->passed, stream), "event");
  return true;
}

bool Staging::to_host(const View& device, const View& host, cudaStream_t stream) {
  Slot* slot = free_slot(host.bytes());
  if (slot == nullptr) return false;
  copy_async(device, View::matrix(slot->data, host.rows, host.cols, host.dtype), stream);
  slot->target = host;
  check(cudaLaunchHostFunc(stream, &Staging::unpack, slot), "copy to pageable memory");
  check(cudaEventRecord(slot->passed, stream), "event");
  return true;
}

void Staging::unpack(void* slot) {
  const Slot& from = *static_cast<const Slot*>(slot);
  copy_rows(View::matrix(from.data, from.target.rows, from.target.cols, from.target.dtype), from.target);
}

}  // namespace espalier::kernels_fused::cuda
