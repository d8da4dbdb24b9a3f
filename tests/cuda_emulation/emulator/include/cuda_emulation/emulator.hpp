#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>

/// CUDA's execution model on the CPU, for tests: blocks run one after another, the threads of a block are fibers on one
/// thread of the operating system that switch at barriers and warp collectives only. Limits: ../README.md.
namespace cuda_emulation {

/// A place in a kernel's source.
struct Location {
  const char* file = "";
  unsigned line = 0;

  constexpr Location() = default;
  constexpr Location(const std::source_location& at) : file(at.file_name()), line(at.line()) {}  // NOLINT: implicit by design
};

/// In which order blocks, and the threads of a block that can go on, are run.
enum class Order : std::uint8_t { forward, reverse, random };

struct Options {
  Order order = Order::forward;
  std::uint64_t seed = 1;  ///< of Order::random
  bool races = true;       ///< watch shared memory for unordered accesses (costs a factor of two)
};

/// In force for the launches that follow. At first what the variable ESPALIER_CUDA_EMULATION says, a list like
/// "order=random,seed=7,races=off".
Options& options();

/// A mistake in a kernel or its launch. The message names kernel, block, thread and, where there is one, file and line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What stands behind streams. A fake runtime queues launches and runs them later, in any order that streams and events
/// allow.
class Runtime {
 public:
  virtual ~Runtime() = default;
  /// @param work  runs the whole grid; throws Error.
  virtual void enqueue(cudaStream_t stream, const std::string& name, std::function<void()> work) = 0;
  /// Runs what is left on the stream.
  virtual void wait(cudaStream_t stream) = 0;
};

/// Replaces the runtime; null (the state at start) runs every launch at once. Not owned.
void set_runtime(Runtime* runtime);

/// Checks the limits of the device, then hands the launch to the runtime, or runs it.
/// @param thread  body of one thread.
void launch(const char* name, dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, cudaStream_t stream,
            std::function<void()> thread);

/// Runs what is left on the stream; nothing to do without a runtime.
void wait(cudaStream_t stream);

}  // namespace cuda_emulation
