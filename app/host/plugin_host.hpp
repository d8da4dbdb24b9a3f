#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/communicator.hpp"
#include "espalier/plugin_host.hpp"

/// Finds the plugins that a recipe names and lets the ranks agree on them: checks 1 and 9 of docs/plugin-guide.md,
/// around those of the core.
namespace espalier::app {

/// `lib<name>.so` → name; "" for any other file name.
std::string plugin_name_of(const std::filesystem::path& path);

/// Files lib*.so of a folder, sorted; none when it cannot be read.
std::vector<std::filesystem::path> plugin_files_in(const std::filesystem::path& folder);

/// A plugin is there, but not its variant for the device that was asked for.
class NoSuchVariant : public PluginError {
 public:
  using PluginError::PluginError;
};

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
std::vector<std::filesystem::path> plugin_search_path(const std::filesystem::path& recipe_dir,
                                                      std::span<const std::filesystem::path> from_recipe,
                                                      const std::filesystem::path& installed);

/// Not thread-safe: used from the main thread.
class PluginHost {
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

  /// Makes an object (check 8, LoadedPlugin::create). agree_on() remembers it.
  template <class Interface>
  Owned<Interface> create(const LoadedPlugin& plugin, const ConfigView& config, HostContext& host) {
    try {
      Owned<Interface> object = plugin.create<Interface>(config, host);
      record(plugin, "created " + std::string(kKind<Interface>));
      return object;
    } catch (const Error& error) {
      remember(error);
      throw;
    }
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

  const LoadedPlugin& load_file(const std::filesystem::path& path, std::string_view expected);
  std::filesystem::path find_file(std::string_view name, std::string_view device) const;
  std::filesystem::path find_path(const std::filesystem::path& path, std::string_view device) const;
  std::set<std::string> known_names() const;
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

}  // namespace espalier::app
