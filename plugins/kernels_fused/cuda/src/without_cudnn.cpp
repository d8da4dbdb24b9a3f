// Stands in for cudnn_attention.cpp where cuDNN or its frontend is missing.
#include "cudnn_attention.hpp"

namespace espalier::kernels_fused::cuda {

std::unique_ptr<AttentionKernels> make_cudnn_attention(Scratch&) { return nullptr; }

Reason cudnn_without_plan(const std::string&, int, const Attention&, bool) { return "this build has no cuDNN"; }

}  // namespace espalier::kernels_fused::cuda
