#include "espalier/plugin.hpp"
#include "fp32_adamw.hpp"

namespace {

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::Optimizer, espalier::optim_fp32::Fp32AdamW>("adamw", espalier::kAdamWOptions,
                                                                               std::size(espalier::kAdamWOptions)),
};

}  // namespace

ESPALIER_PLUGIN("optim_fp32", "0.1.0", "Apache-2.0", "AdamW with everything in FP32", kFactories);
