#include "espalier/plugin.hpp"
#include "faulty_backend.hpp"
#include "faulty_dataset.hpp"

namespace {

using espalier::OptionType;

constexpr espalier::OptionSpec kBackend[] = {
    {"fault", OptionType::string, "\"\"", "nan, infinity, zero, throw or create"},
    {"steps", OptionType::integers, "[]", "steps it happens in, counted from the start of the process", 1, 1e9},
    {"every_step", OptionType::boolean, "false", "it happens in every step"},
    {"rank", OptionType::integer, "-1", "of the world; -1: all", -1, 1e6},
};
constexpr espalier::OptionSpec kDataset[] = {
    {"fault", OptionType::string, "\"\"", "open, train or valid: fails there"},
    {"index", OptionType::integer, "0", "training sample from which reading fails", 0, 1e12},
    {"rank", OptionType::integer, "-1", "of the world; -1: all", -1, 1e6},
    {"mask", OptionType::boolean, "false", "most targets do not count"},
    {"record", OptionType::string, "\"\"", "file that gets the validation samples read; .<rank> is appended"},
};

constinit const espalier::Factory kFactories[] = {
    espalier::factory_of<espalier::Backend, espalier::faults::FaultyBackend>("faulty_reference", kBackend,
                                                                             std::size(kBackend)),
    espalier::factory_of<espalier::Dataset, espalier::faults::FaultyDataset>("random", kDataset, std::size(kDataset)),
};

}  // namespace

ESPALIER_PLUGIN("faults", "0.1.0", "Apache-2.0", "the reference backend and random data, made to go wrong", kFactories);
