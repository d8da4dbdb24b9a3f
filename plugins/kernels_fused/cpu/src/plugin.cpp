#include "espalier/plugin.hpp"
#include "fused_backend.hpp"

namespace {

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::Backend, espalier::kernels_fused::FusedBackend>(
        "cpu", espalier::kernels_fused::kOptions, std::size(espalier::kernels_fused::kOptions)),
};

}  // namespace

ESPALIER_PLUGIN("kernels_fused", "0.1.0", "Apache-2.0",
                "CPU kernels: GEMM by oneDNN, own AVX2 and AVX-512 for the rest", kFactories);
