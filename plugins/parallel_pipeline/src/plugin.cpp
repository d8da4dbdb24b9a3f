#include "espalier/plugin.hpp"
#include "pipeline.hpp"

namespace {

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::PipelineParallel, espalier::parallel_pipeline::Pipeline>(
        "pipeline", espalier::parallel_pipeline::kOptions, std::size(espalier::parallel_pipeline::kOptions)),
};

}  // namespace

ESPALIER_PLUGIN("parallel_pipeline", "0.1.0", "Apache-2.0",
                "Layers over several ranks: GPipe, 1F1B, interleaved 1F1B, zero-bubble", kFactories);
