#pragma once

#include "commands/command.hpp"

namespace espalier::app {

/// One line a command, defined in the file of its name.
extern const Command kDoctor;

}  // namespace espalier::app
