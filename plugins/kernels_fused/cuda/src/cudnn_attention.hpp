#pragma once

#include <memory>
#include <string>

#include "espalier/kernels.hpp"

namespace espalier::kernels_fused::cuda {

class Scratch;

/// Attention by cuDNN's fused kernels, which never write scores to memory: whole causal sequences in BF16 and FP16 without
/// dropout, with the slopes that we give it (its own ALiBi makes them from the rank's number of heads, which is wrong under
/// tensor parallelism). Q, K and V are read where they lie. Backward is asked to be deterministic.
/// @param scratch  kept by reference.
/// @returns null when the plugin was built without cuDNN and its frontend.
/// @throws DeviceError when cuDNN cannot start.
std::unique_ptr<AttentionKernels> make_cudnn_attention(Scratch& scratch);

/// Whether cuDNN has a plan for the shape on a GPU that need not be there.
/// @param device   the GPU in cuDNN's JSON form of device properties
/// @param sm       its compute capability, 90 for 9.0
/// @param backward for the gradients, which lie as q, k and v do
/// @returns nothing, or cuDNN's reason.
Reason cudnn_without_plan(const std::string& device, int sm, const Attention& shape, bool backward);

}  // namespace espalier::kernels_fused::cuda
