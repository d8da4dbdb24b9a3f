#include "espalier/plugin.hpp"
#include "zero.hpp"

namespace {

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::DataParallel, espalier::parallel_zero::Zero>(
        "zero", espalier::parallel_zero::kOptions, std::size(espalier::parallel_zero::kOptions)),
};

}  // namespace

ESPALIER_PLUGIN("parallel_zero", "0.1.0", "Apache-2.0",
                "Data parallelism with state, gradients and weights sharded over the group (ZeRO 0 to 3)", kFactories);
