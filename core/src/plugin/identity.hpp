#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace espalier {

/// What ESPALIER_PLUGIN wrote into the section `espalier_id` of a plugin's file.
struct PluginIdentity {
  std::string abi_id;
  std::string name;
  std::string version;
};

/// Reads the identity from the file, without mapping any of its code.
/// @throws PluginError saying what is wrong with the file, without its name: no file, a folder, not ELF, truncated,
/// another
///         machine's, no plugin.
PluginIdentity read_identity(const std::filesystem::path& path);

/// Hash of the file's bytes (64-bit FNV-1a over words), for telling that two ranks loaded different builds. Not
/// cryptographic.
std::uint64_t hash_file(const std::filesystem::path& path);

/// Empty when a plugin of this identity fits this core; else what differs, both sides, and what to do.
std::string build_difference(std::string_view plugin_abi_id);

}  // namespace espalier
