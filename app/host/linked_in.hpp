#pragma once

#include <span>

#include "espalier/plugin.hpp"

namespace espalier::app {

/// Plugins that the program was linked with (ESPALIER_STATIC_PLUGINS): every host made from now on knows them by their
/// names, before any file of that name. Called by main, which alone knows them. The descriptors live as long as the
/// process.
void link_in(std::span<const PluginDescriptor* const> descriptors);

/// What link_in was given.
std::span<const PluginDescriptor* const> linked_in();

}  // namespace espalier::app
