// What is loaded and what is built in.
#include "host/plugin_host.hpp"

#include <utility>

#include "espalier/error.hpp"
#include "host/linked_in.hpp"

namespace espalier::app {

PluginHost::PluginHost(std::vector<std::filesystem::path> search_path) : search_path_(std::move(search_path)) {
  for (const PluginDescriptor* const descriptor : linked_in()) add_builtin(*descriptor);
}

PluginHost::~PluginHost() = default;

void PluginHost::add_builtin(const PluginDescriptor& descriptor) {
  std::unique_ptr<LoadedPlugin> plugin = load_builtin(descriptor);
  builtins_.insert_or_assign(descriptor.name, std::move(plugin));
}

const LoadedPlugin& PluginHost::load(std::string_view name_or_path, std::string_view device) {
  try {
    if (name_or_path.empty()) throw PluginError("plugin \"\": find: a plugin needs a name");
    if (device.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string_view::npos) {
      throw PluginError("plugin \"" + std::string(name_or_path) + "\": find: device \"" + std::string(device) +
                        "\" is no name of lower-case letters, digits and _");
    }
    std::filesystem::path path;
    std::string name;
    if (name_or_path.find('/') != std::string_view::npos) {
      path = find_path(std::filesystem::path(name_or_path), device);
      name = plugin_name_of(path);
      if (name.empty()) {
        throw PluginError("plugin \"" + std::string(name_or_path) +
                          "\": find: the file of a plugin is called lib<name>.so");
      }
    } else {
      name = std::string(name_or_path);
      if (!device.empty() && device != "cpu") name += "_" + std::string(device);
      if (const auto builtin = builtins_.find(name); builtin != builtins_.end()) {
        record(*builtin->second, "loaded");
        return *builtin->second;
      }
      path = find_file(name_or_path, device);
    }
    const LoadedPlugin& plugin = load_file(path, name);
    record(plugin, "loaded");
    return plugin;
  } catch (const Error& error) {
    remember(error);
    throw;
  }
}

void PluginHost::remember(const Error& error) {
  if (!failure_.empty()) return;
  failure_ = error.what();
  failure_code_ = static_cast<int>(error.exit_code());
}

const LoadedPlugin& PluginHost::load_file(const std::filesystem::path& path, std::string_view expected) {
  if (const auto known = files_.find(path); known != files_.end()) return *known->second;
  return *files_.emplace(path, load_plugin_file(path, expected)).first->second;
}

void PluginHost::record(const LoadedPlugin& plugin, std::string_view step) {
  records_.push_back({std::string(plugin.name()), "version " + std::string(plugin.version()) + ", build \"" +
                                                      plugin.descriptor().abi_id + "\", content " +
                                                      std::to_string(plugin.content()) + ", " + std::string(step)});
}

std::vector<PluginListing> PluginHost::list() {
  std::vector<PluginListing> result;
  std::map<std::string, std::string, std::less<>> first;  // name → where it is found
  for (const auto& [name, plugin] : builtins_) {
    result.push_back({name, std::string(plugin->version()), {}, "", plugin.get()});
    first.emplace(name, "what is built in");
  }
  for (const std::filesystem::path& folder : search_path_) {
    for (const std::filesystem::path& path : plugin_files_in(folder)) {
      PluginListing listing;
      listing.name = plugin_name_of(path);
      listing.path = path;
      try {
        listing.version = read_version(path);
        const auto [hidden_by, is_first] = first.try_emplace(listing.name, path.string());
        if (is_first) {
          listing.plugin = &load_file(path, listing.name);
        } else {
          listing.problem = "hidden by " + hidden_by->second;
        }
      } catch (const Error& error) {
        listing.problem = error.what();
      }
      result.push_back(std::move(listing));
    }
  }
  return result;
}

}  // namespace espalier::app
