#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/export.hpp"
#include "espalier/plugin.hpp"

/// Finds, checks and loads plugins, and makes objects with them. Used by programs; a plugin has no need of it.
///
/// Nine checks stand between a name in a recipe and a running object, each with its own message (docs/plugin-guide.md):
/// find, open, entry, layout, build, core, identity (load() and factory()), create, agree.
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

/// A plugin that passed checks 1 to 7. Lives as long as its PluginHost.
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

 private:
  const PluginDescriptor* descriptor_;
  std::filesystem::path path_;
  std::shared_ptr<const Library> library_;
  std::uint64_t content_;
};

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

/// One line of `plugins list`.
struct PluginListing {
  std::string name;
  std::string version;                   ///< "" when the file says none
  std::filesystem::path path;            ///< empty: built in
  std::string problem;                   ///< why it would be refused; empty: usable
  const LoadedPlugin* plugin = nullptr;  ///< descriptor, factories and options; null when there is a problem
};

/// Folders in the order in which they are searched: the recipe's own, `plugins.search_path` of the recipe (relative to
/// its folder), ESPALIER_PLUGIN_PATH (":" between folders), the installed one. All absolute; none twice.
ESPALIER_API std::vector<std::filesystem::path> plugin_search_path(const std::filesystem::path& recipe_dir,
                                                                   std::span<const std::filesystem::path> from_recipe,
                                                                   const std::filesystem::path& installed);

/// Not thread-safe: used from the main thread.
class ESPALIER_API PluginHost {
 public:
  explicit PluginHost(std::vector<std::filesystem::path> search_path);
  ~PluginHost();
  PluginHost(const PluginHost&) = delete;
  PluginHost& operator=(const PluginHost&) = delete;

  const std::vector<std::filesystem::path>& search_path() const { return search_path_; }

  /// Makes a linked-in component known by its name, before any file of that name. The descriptor must outlive the host.
  void add_builtin(const PluginDescriptor& descriptor);

  /// Finds and checks a plugin (checks 1 to 7, except the kind, which factory() checks). Loading twice gives the same
  /// object.
  /// @param name_or_path  "optim_bf16": lib<name>.so in the search path; with a "/" in it: that file (a relative one is
  /// sought
  ///                      in each folder of the search path, then in the current one).
  /// @param device  "" or "cpu": the plain name; anything else names the variant: "cuda" → lib<name>_cuda.so.
  /// @throws PluginError with plugin, path, check and what to do. agree_on() remembers it.
  const LoadedPlugin& load(std::string_view name_or_path, std::string_view device = "");

  /// Makes an object (check 8). What the plugin throws keeps its class when a user can act on it (ConfigError, IoError,
  /// DeviceError, CommError, NumericsError), with the plugin named; everything else becomes PluginError with plugin,
  /// path and stage.
  template <class Interface>
  Owned<Interface> create(const LoadedPlugin& plugin, const ConfigView& config, HostContext& host) {
    const Factory& factory = plugin.factory(kKind<Interface>);
    return {static_cast<Interface*>(create_object(plugin, factory, config, host)),
            PluginDeleter(plugin.library(), factory.destroy)};
  }

  /// What is built in, then every lib*.so on the search path: usable or not, with the reason. Files are judged by their
  /// identity section first; only those that fit this core are mapped.
  std::vector<PluginListing> list();

  /// Check 9, collective over the world: every rank loaded and created the same (name, version, build, bytes of the
  /// file; not its path) and met no error. Called once after all load() and once after all create(), also by a rank
  /// where one of them threw.
  /// @throws PluginError on all ranks alike otherwise: the error of the lowest rank that failed, or the first rank that
  /// differs.
  void agree_on(Communicator& world);

 private:
  struct Record {
    std::string name;
    std::string facts;  // version, build, content, step reached
  };

  void* create_object(const LoadedPlugin& plugin, const Factory& factory, const ConfigView& config, HostContext& host);
  const LoadedPlugin& load_file(const std::filesystem::path& path, std::string_view expected);
  std::filesystem::path find_file(std::string_view name, std::string_view device) const;
  std::filesystem::path find_path(const std::filesystem::path& path, std::string_view device) const;
  std::string near_text(std::string_view name, std::string_view device) const;
  void record(const LoadedPlugin& plugin, std::string_view step);
  void remember(const Error& error);

  std::vector<std::filesystem::path> search_path_;
  std::map<std::string, std::unique_ptr<LoadedPlugin>, std::less<>> builtins_;
  std::map<std::filesystem::path, std::unique_ptr<LoadedPlugin>> files_;
  std::vector<Record> records_;
  std::string failure_;  // first one on this rank since the last agreement
  int failure_code_ = 0;
};

}  // namespace espalier
