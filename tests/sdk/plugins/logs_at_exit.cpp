// A static object that uses a shared library in its destructor.
#include "sdk/plugins/bad.hpp"
#include "sdk/plugins/shared_log.hpp"

namespace {
struct AtExit {
  ~AtExit() { sdk_shared_log(SDK_NAME " ends"); }
} at_exit;
}  // namespace

ESPALIER_PLUGIN(SDK_NAME, "1.0.0", "Apache-2.0", "Logs when the process ends", kFactories);
