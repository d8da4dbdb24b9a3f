#include "sdk/plugins/bad.hpp"

namespace sdk_nowhere {
int to_be_found(int);
}

namespace {
const int kUse = sdk_nowhere::to_be_found(3);
}

ESPALIER_PLUGIN("sdk_undefined_symbol", "1.0.0", "Apache-2.0", "Needs a symbol that nobody has", kFactories);
