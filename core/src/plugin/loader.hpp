#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/plugin_host.hpp"

namespace espalier {

/// "lib" + name + ".so" of a file name, or "" when it is none.
std::string plugin_name_of(const std::filesystem::path& path);

/// Files lib*.so of a folder, sorted; none when it cannot be read.
std::vector<std::filesystem::path> plugin_files_in(const std::filesystem::path& folder);

/// `plugin "name" (path)` or `plugin "name" (built in)`.
std::string plugin_title(std::string_view name, const std::filesystem::path& path);

/// Checks 4, 5, 6 and the name of check 7 on a descriptor.
/// @throws PluginError.
void check_descriptor(const PluginDescriptor& descriptor, std::string_view expected_name,
                      const std::filesystem::path& path);

/// Checks 2 to 7 on a file that exists: identity from the file, then open, entry, layout, build, core, identity.
/// @throws PluginError with plugin, path and check.
std::unique_ptr<LoadedPlugin> load_plugin_file(const std::filesystem::path& path, std::string_view expected_name);

}  // namespace espalier
