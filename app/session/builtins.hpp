#pragma once

#include "host/plugin_host.hpp"

namespace espalier::app {

/// Makes what is linked in known under the names recipes use: "reference" (backend), "none" (the one-rank strategies),
/// "synthetic" (dataset), "bytes" (tokenizer).
void add_builtins(PluginHost& host);

}  // namespace espalier::app
