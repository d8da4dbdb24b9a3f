#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string_view>

/// The fake CUDA runtime: work is queued, and runs on the host's thread only when the host waits or asks, in an order
/// drawn by ESPALIER_FAKE_CUDA_SEED that respects streams and events alone. README.md lists its switches and limits.
namespace fake {

/// One piece of queued work: false means "not yet" (a communication that polls), and other streams go on meanwhile.
using Step = std::function<bool()>;

/// Puts work at the end of a stream. Device memory is accessible while it runs, and only then. An exception out of it
/// becomes a sticky error of the device, as a fault in a kernel does.
/// @param name  for messages: the kernel or call.
void enqueue(cudaStream_t stream, std::string_view name, Step step);

/// Runs some work, or none, as time that passes would; false when nothing is queued that could run. For loops of the
/// host that wait for something else than the device (MPI), so that ranks that wait for each other get on.
bool progress();

/// The sticky error, cudaSuccess when there is none.
cudaError_t sticky_error();
void set_sticky_error(cudaError_t error);

/// A number that depends on the seed and on how many were drawn: the one source of every choice the fake makes.
std::uint64_t draw();

/// Milliseconds that matrix products took, by which events tell times: all that is known of time.
double& clock();

/// Whether queued work is running at this moment, and its name ("" when none is).
std::string_view running();

}  // namespace fake
