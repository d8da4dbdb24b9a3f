#include "espalier/version.hpp"

namespace espalier {

std::string_view version() noexcept { return ESPALIER_VERSION; }

}  // namespace espalier
