#include "espalier/plugin.hpp"
#include "fused_cuda_backend.hpp"

namespace {

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::Backend, espalier::kernels_fused::cuda::FusedCudaBackend>(
        "cuda", espalier::kernels_fused::cuda::kOptions, std::size(espalier::kernels_fused::cuda::kOptions)),
};

}  // namespace

ESPALIER_PLUGIN("kernels_fused_cuda", "0.1.0", "Apache-2.0",
                "NVIDIA GPUs: matrices by cuBLASLt, own CUDA kernels for the rest", kFactories);
