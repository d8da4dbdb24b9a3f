#pragma once

#include <filesystem>
#include <string_view>

#include "espalier/host.hpp"

namespace espalier::app {

/// Sets up the process's one log. Standard error gets what is at or above `level`: from rank 0 everything, from other ranks
/// warnings and errors only, each line with its rank. Call once the rank is known; before that, lines go out without a rank.
void start_log(int rank, int world, LogLevel level);

/// Also appends every line of this rank to a file (the run folder's trainer.log).
void log_to_file(const std::filesystem::path& path);

/// One line. `who` is the part of the trainer or the plugin that speaks. Any thread may call.
void log(LogLevel level, std::string_view who, std::string_view text);

LogLevel parse_log_level(std::string_view name);

}  // namespace espalier::app
