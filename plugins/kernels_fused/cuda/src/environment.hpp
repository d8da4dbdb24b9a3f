#pragma once

namespace espalier::kernels_fused::cuda {

/// Tells CUDA and NCCL, through their variables, what several streams and groups of one process need. Before the first
/// call of either, which is when they read them. What the environment already says stays.
void prepare_environment();

}  // namespace espalier::kernels_fused::cuda
