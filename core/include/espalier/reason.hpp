#pragma once

#include <optional>
#include <string>

namespace espalier {

/// The answer of every `supports` and `accepts`: empty means yes, a text says why not.
using Reason = std::optional<std::string>;

}  // namespace espalier
