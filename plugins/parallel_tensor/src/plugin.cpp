#include "espalier/plugin.hpp"
#include "tensor.hpp"

namespace {

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::TensorParallel, espalier::parallel_tensor::Tensor>(
        "tensor", espalier::parallel_tensor::kOptions, std::size(espalier::parallel_tensor::kOptions)),
};

}  // namespace

ESPALIER_PLUGIN("parallel_tensor", "0.1.0", "Apache-2.0",
                "Each layer over several ranks: column, row and vocabulary splits, sequence parallelism", kFactories);
