#pragma once

#include <string>
#include <vector>

#include "host/plugin_host.hpp"

namespace espalier::app {

/// A line for the CPU and one for each device that a plugin finds, with its description and what copies reach, about
/// half a second each; or why it finds none. Asks each backend plugin of the list that is a variant for a device
/// ("kernels_fused_cuda"). Takes memory on the devices for a moment.
std::vector<std::string> find_devices(PluginHost& host);

}  // namespace espalier::app
