#pragma once

#include <filesystem>

namespace espalier::app {

/// Folder of the running executable.
std::filesystem::path program_dir();

/// Where our own plugins lie, relative to the executable; the same in the build tree and in an installed one.
std::filesystem::path installed_plugin_dir();

}  // namespace espalier::app
