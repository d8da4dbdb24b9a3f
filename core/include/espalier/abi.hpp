#pragma once

#include "espalier/build_id.hpp"

/// Version of the layout of PluginDescriptor and of the meaning of the interfaces: major for breaks, minor for additions.
/// ESPALIER_ABI_ID, from the generated build_id.hpp, adds what must be equal on both sides of the border: build family and hash of
/// the public headers.
#define ESPALIER_ABI_MAJOR 1
#define ESPALIER_ABI_MINOR 0
