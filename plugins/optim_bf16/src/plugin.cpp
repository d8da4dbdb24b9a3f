#include "bf16_adamw.hpp"
#include "espalier/plugin.hpp"

namespace {

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::Optimizer, espalier::optim_bf16::Bf16AdamW>("adamw", espalier::kAdamWOptions,
                                                                               std::size(espalier::kAdamWOptions)),
};

}  // namespace

ESPALIER_PLUGIN("optim_bf16", "0.1.0", "Apache-2.0", "AdamW with BF16 weights, FP32 master weights and FP32 accumulation", kFactories);
