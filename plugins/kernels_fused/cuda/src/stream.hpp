#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <new>
#include <type_traits>

#include "espalier/device.hpp"
#include "espalier/error.hpp"

namespace espalier::kernels_fused::cuda {

/// Keeps a stream's work back, to send it later, many pieces at once (graphs.hpp).
class Recorder {
 public:
  static constexpr std::size_t kAlignment = 16;
  using Runner = void (*)(const void* work, cudaStream_t stream);

  virtual ~Recorder() = default;
  /// Sends what was kept, in order. @throws DeviceError when a piece of it cannot be started.
  virtual void send() = 0;

  /// @param work  is copied. Two pieces are the same exactly when their bytes are, and those of their type's call.
  template <class Work>
  void keep(const Work& work) {
    static_assert(std::is_trivially_copyable_v<Work> && std::is_trivially_destructible_v<Work>,
                  "work that is kept is bytes: no strings, vectors or owners");
    static_assert(alignof(Work) <= kAlignment);
    void* const room = this->room(
        [](const void* kept, cudaStream_t stream) { (*static_cast<const Work*>(kept))(stream); }, sizeof(Work));
    [[maybe_unused]] Work* const copy = ::new (room) Work(work);
#ifndef __clang__  // of the compilers only g++, and nvcc with it, have it; clang's tools read this, too
    __builtin_clear_padding(copy);  // whatever lay between the members came along
#endif
  }

 protected:
  /// Room for a piece of work, aligned to kAlignment.
  virtual void* room(Runner runner, std::size_t bytes) = 0;
};

/// Where work goes: a CUDA stream, or what keeps its work back. As a `cudaStream_t` it is the stream with everything
/// sent that was kept for it, so that calls that know nothing of a recorder stay in order. Take that handle for one
/// call only: what is kept later must not be overtaken.
class Queue {
 public:
  Queue(cudaStream_t stream, Recorder* recorder = nullptr)  // NOLINT: a stream is a queue
      : stream_(stream), recorder_(recorder) {}

  /// @param work  a function object of bytes, called with the stream now or later.
  template <class Work>
  void run(const Work& work) const {
    if (recorder_ != nullptr) {
      recorder_->keep(work);
    } else {
      work(stream_);
    }
  }

  operator cudaStream_t() const {  // NOLINT: see above
    if (recorder_ != nullptr) recorder_->send();
    return stream_;
  }

 private:
  cudaStream_t stream_;
  Recorder* recorder_;
};

/// A CUDA stream, not owned.
class CudaStream final : public Stream {
 public:
  explicit CudaStream(cudaStream_t handle) : handle_(handle) {}
  Queue handle() const { return {handle_, recorder_}; }
  /// @param recorder  kept by reference; null: work is sent at once.
  void record_with(Recorder* recorder) { recorder_ = recorder; }

 private:
  cudaStream_t handle_;
  Recorder* recorder_ = nullptr;
};

/// The CUDA stream behind a lane of the CUDA device.
inline Queue handle(Stream& stream) {
  auto* const cuda = dynamic_cast<CudaStream*>(&stream);
  ESPALIER_ASSERT(cuda != nullptr);
  return cuda->handle();
}

}  // namespace espalier::kernels_fused::cuda
