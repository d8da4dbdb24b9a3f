#include "environment.hpp"

#include <cstdlib>

namespace espalier::kernels_fused::cuda {

void prepare_environment() {
  constexpr int kUnlessSet = 0;
  // Streams that share a queue of the hardware wait for each other's events: by default there are 8, and a rank has a
  // stream a lane and one a group.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kUnlessSet);
  // Kernels of NCCL hold multiprocessors while they wait for other ranks. Started in the host's order, which is one for
  // all ranks, they cannot wait for each other in a circle; without this (2.26 and later) the device starts those of
  // several groups in any order.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", kUnlessSet);
}

}  // namespace espalier::kernels_fused::cuda
