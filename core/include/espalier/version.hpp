#pragma once

#include <string_view>

#include "espalier/export.hpp"

namespace espalier {

/// Version of the core that runs, "MAJOR.MINOR.PATCH". Headers and plugins fit a core of the same MAJOR.MINOR.
ESPALIER_API std::string_view version() noexcept;

}  // namespace espalier
