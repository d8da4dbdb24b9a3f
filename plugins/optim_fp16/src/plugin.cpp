#include "espalier/plugin.hpp"
#include "fp16_adamw.hpp"

namespace {

using espalier::OptionType;

constexpr espalier::OptionSpec kOptions[] = {
    espalier::kAdamWOptions[0],
    espalier::kAdamWOptions[1],
    espalier::kAdamWOptions[2],
    {"loss_scale", OptionType::number, "0.0", "fixed loss scale; 0 = dynamic", 0.0, 0x1p40},
    {"initial_scale_power", OptionType::integer, "16", "the dynamic scale starts at 2 to this power", 0, 40},
    {"loss_scale_window", OptionType::integer, "1000", "steps without overflow before the scale doubles", 1},
    {"hysteresis", OptionType::integer, "2", "overflows before the scale is halved", 1},
    {"min_loss_scale", OptionType::number, "1.0", "the run stops when it overflows at this scale", 0x1p-40, 0x1p40},
};

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::Optimizer, espalier::optim_fp16::Fp16AdamW>("adamw", kOptions, std::size(kOptions)),
};

}  // namespace

ESPALIER_PLUGIN("optim_fp16", "0.1.0", "Apache-2.0", "AdamW with FP16 weights, a dynamic loss scale and FP32 master weights", kFactories);
