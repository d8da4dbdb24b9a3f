// The identity fits, the descriptor is of another major version.
#include "sdk/plugins/bad.hpp"

#undef ESPALIER_ABI_MAJOR
#define ESPALIER_ABI_MAJOR 99

ESPALIER_PLUGIN("sdk_other_interface", "1.0.0", "Apache-2.0", "Of another major version", kFactories);
