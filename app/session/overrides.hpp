#pragma once

#include <map>
#include <string>

#include "espalier/plugin_host.hpp"

namespace espalier::app {

/// A backend some of whose kernel families come from other providers (`backend.overrides`).
/// @param overrides  family ("attention") → provider object; providers must work on memory the base's device hands out.
/// @throws ConfigError for a family that does not exist, or a provider whose memory is not the base's.
Owned<Backend> override_families(Owned<Backend> base, std::map<std::string, Owned<Backend>> overrides);

}  // namespace espalier::app
