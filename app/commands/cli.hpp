#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "commands/command.hpp"

namespace espalier::app {

/// Reads the command line and runs the command it names.
/// @param arguments  without the program's name.
/// @param out  where --help and --version go.
/// @returns the exit code of the command; 0 after --help and --version.
/// @throws ConfigError with everything wrong with the command line, one a line; whatever the command throws.
int run_cli(const std::vector<std::string>& arguments, std::span<const Command* const> commands, std::ostream& out);

/// This process's rank in the job, as its launcher tells it before MPI starts; -1 without a launcher.
int launched_rank();

/// run_cli with all_commands(), and every exception turned into one message on standard error and a documented exit
/// code. A job of several ranks prints a message all ranks share once, by its first rank.
int run_program(int argc, const char* const* argv);

}  // namespace espalier::app
