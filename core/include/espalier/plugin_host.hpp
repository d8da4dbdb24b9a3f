#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/export.hpp"
#include "espalier/plugin.hpp"

/// Checks and loads plugins, and makes objects with them. Used by programs; a plugin has no need of it.
///
/// Nine checks stand between a name in a recipe and a running object, each with its own message (docs/plugin-guide.md):
/// find, open, entry, layout, build, core, identity, create, agree. Those from open to create are here; the trainer finds
/// the file and lets the ranks agree.
namespace espalier {

/// A mapped plugin file: an opaque handle that objects keep. Files are never unmapped before the process ends.
class Library;

/// The descriptor of a component that is linked in.
constexpr PluginDescriptor builtin_descriptor(const char* name, const char* summary,
                                              std::span<const Factory> factories) {
  return {kPluginMagic,
          sizeof(PluginDescriptor),
          ESPALIER_ABI_MAJOR,
          ESPALIER_ABI_MINOR,
          ESPALIER_ABI_ID,
          name,
          "built in",
          "Apache-2.0",
          summary,
          &core_identity,
          factories.data(),
          factories.size()};
}

/// Destroys an object where it was made, and keeps its code mapped until then.
class PluginDeleter {
 public:
  PluginDeleter() = default;
  PluginDeleter(std::shared_ptr<const Library> library, void (*destroy)(void*) noexcept)
      : library_(std::move(library)), destroy_(destroy) {}

  template <class Interface>
  void operator()(Interface* object) const noexcept {
    destroy_(object);
  }

 private:
  std::shared_ptr<const Library> library_;
  void (*destroy_)(void*) noexcept = nullptr;
};

/// An object made by a plugin, or by the program itself (own()).
template <class Interface>
using Owned = std::unique_ptr<Interface, PluginDeleter>;

/// Wraps an object of the program's own, so that both kinds have one type.
template <class Interface>
Owned<Interface> own(std::unique_ptr<Interface> object) {
  return {object.release(),
          PluginDeleter(nullptr, [](void* pointer) noexcept { delete static_cast<Interface*>(pointer); })};
}

/// A plugin that passed checks 2 to 7.
class ESPALIER_API LoadedPlugin {
 public:
  LoadedPlugin(const PluginDescriptor& descriptor, std::filesystem::path path, std::shared_ptr<const Library> library,
               std::uint64_t content);

  const PluginDescriptor& descriptor() const { return *descriptor_; }
  std::string_view name() const { return descriptor_->name; }
  std::string_view version() const { return descriptor_->version; }
  std::span<const Factory> factories() const { return {descriptor_->factories, descriptor_->factory_count}; }
  /// Absolute; empty for what is built in.
  const std::filesystem::path& path() const { return path_; }
  /// Hash of the file's bytes, 0 for what is built in.
  std::uint64_t content() const { return content_; }
  const std::shared_ptr<const Library>& library() const { return library_; }
  /// `plugin "optim_bf16" (/usr/lib/espalier/plugins/liboptim_bf16.so)`, for messages.
  std::string title() const;

  /// The factory of a kind (kKind<Interface>).
  /// @throws PluginError naming what the plugin does offer.
  const Factory& factory(std::string_view kind) const;
  /// Options of the recipe table that names the plugin, to be checked with check_options before anything is created.
  template <class Interface>
  std::span<const OptionSpec> options() const {
    const Factory& found = factory(kKind<Interface>);
    return {found.options, found.option_count};
  }

  /// Makes an object (check 8). What the plugin throws keeps its class when a user can act on it (ConfigError, IoError,
  /// DeviceError, CommError, NumericsError), with the plugin named; everything else becomes PluginError with plugin,
  /// path and stage.
  template <class Interface>
  Owned<Interface> create(const ConfigView& config, HostContext& host) const {
    const Factory& made_by = factory(kKind<Interface>);
    return {static_cast<Interface*>(create_object(made_by, config, host)), PluginDeleter(library_, made_by.destroy)};
  }

 private:
  void* create_object(const Factory& factory, const ConfigView& config, HostContext& host) const;

  const PluginDescriptor* descriptor_;
  std::filesystem::path path_;
  std::shared_ptr<const Library> library_;
  std::uint64_t content_;
};

/// Checks 2 to 7 on a file that exists, but for the kind, which factory() checks.
/// @param expected_name  what the recipe calls it: file and descriptor must say the same.
/// @throws PluginError with plugin, path and check.
ESPALIER_API std::unique_ptr<LoadedPlugin> load_plugin_file(const std::filesystem::path& path,
                                                            std::string_view expected_name);

/// Checks 4 to 7 on a component that is linked in. The descriptor must outlive the plugin.
/// @throws PluginError.
ESPALIER_API std::unique_ptr<LoadedPlugin> load_builtin(const PluginDescriptor& descriptor);

/// The version that a plugin's file states, read without mapping any of its code.
/// @throws PluginError saying what is wrong with the file, without its name.
ESPALIER_API std::string read_version(const std::filesystem::path& path);

}  // namespace espalier
