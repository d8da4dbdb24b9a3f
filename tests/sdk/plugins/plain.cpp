// Nothing wrong in the source: what is wrong is how it is built (compile definitions, link options, further sources).
#include "sdk/plugins/bad.hpp"

ESPALIER_PLUGIN(SDK_NAME, "1.0.0", "Apache-2.0", "Built in a wrong way", kFactories);
