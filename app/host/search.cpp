// Check 1: from the name in a recipe to a file.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "espalier/error.hpp"
#include "host/plugin_host.hpp"

namespace espalier::app {

namespace {

namespace fs = std::filesystem;

bool on_disk(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string variant(std::string_view name, std::string_view device) {
  return device.empty() || device == "cpu" ? std::string(name) : std::string(name) + "_" + std::string(device);
}

std::string places(const std::vector<fs::path>& folders) {
  std::string text;
  for (const fs::path& folder : folders) {
    text += (text.empty() ? "" : ", ") + folder.string();
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) text += " (no such folder)";
  }
  return text.empty() ? "nowhere (the search path is empty)" : text;
}

}  // namespace

std::vector<fs::path> plugin_search_path(const fs::path& recipe_dir, std::span<const fs::path> from_recipe,
                                         const fs::path& installed) {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& folder) {
    if (folder.empty()) return;
    fs::path absolute = fs::absolute(folder).lexically_normal();
    if (!absolute.has_filename()) absolute = absolute.parent_path();  // "/a/b/" and "/a/b" are one place
    if (std::find(folders.begin(), folders.end(), absolute) == folders.end()) folders.push_back(std::move(absolute));
  };
  add(recipe_dir);
  for (const fs::path& folder : from_recipe) add(folder.empty() ? folder : recipe_dir / folder);
  if (const char* const variable = std::getenv("ESPALIER_PLUGIN_PATH"); variable != nullptr) {
    std::string_view rest = variable;
    while (!rest.empty()) {
      const auto end = std::min(rest.find(':'), rest.size());
      add(fs::path(rest.substr(0, end)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  add(installed);
  return folders;
}

std::string plugin_name_of(const fs::path& path) {
  const std::string file = path.filename().string();
  if (!file.starts_with("lib") || !file.ends_with(".so") || file.size() < 7) return "";
  return file.substr(3, file.size() - 6);
}

std::vector<fs::path> plugin_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (!plugin_name_of(entry->path()).empty() && !entry->is_directory(ignored)) files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::set<std::string> PluginHost::known_names() const {
  std::set<std::string> known;
  for (const auto& [builtin, plugin] : builtins_) known.insert(builtin);
  for (const fs::path& folder : search_path_) {
    for (const fs::path& file : plugin_files_in(folder)) known.insert(plugin_name_of(file));
  }
  return known;
}

std::string PluginHost::near_text(std::string_view name, std::string_view device) const {
  const std::set<std::string> known = known_names();
  const std::string wanted = variant(name, device);
  if (wanted != name && known.contains(std::string(name))) {
    return "; \"" + std::string(name) + "\" is there, but not its variant for the device \"" + std::string(device) +
           "\": build or install that, or choose another device";
  }
  if (const std::string near = nearest_name(wanted, known); !near.empty()) return "; did you mean \"" + near + "\"?";
  std::string all;
  for (const std::string& one : known) all += (all.empty() ? "" : ", ") + ("\"" + one + "\"");
  return all.empty() ? "; no plugin is there at all" : "; known: " + all;
}

fs::path PluginHost::find_file(std::string_view name, std::string_view device) const {
  const std::string full = variant(name, device);
  const std::string file = "lib" + full + ".so";
  for (const fs::path& folder : search_path_) {
    if (on_disk(folder / file)) return folder / file;
  }
  const std::string text =
      "plugin \"" + full + "\": find: " + file + " is not in " + places(search_path_) + near_text(name, device);
  if (full != name && known_names().contains(std::string(name))) throw NoSuchVariant(text);
  throw PluginError(text);
}

fs::path PluginHost::find_path(const fs::path& path, std::string_view device) const {
  fs::path wanted = path;
  if (const std::string name = plugin_name_of(path); !name.empty()) {
    wanted.replace_filename("lib" + variant(name, device) + ".so");
  }
  std::vector<fs::path> tried;
  if (wanted.is_absolute()) {
    tried.push_back(wanted);
  } else {
    for (const fs::path& folder : search_path_) tried.push_back(folder / wanted);
    tried.push_back(fs::current_path() / wanted);
  }
  for (const fs::path& file : tried) {
    if (on_disk(file)) return file.lexically_normal();
  }
  std::string text;
  for (const fs::path& file : tried) text += (text.empty() ? "" : ", ") + file.lexically_normal().string();
  std::set<std::string> known;
  for (const fs::path& file : tried) {
    for (const fs::path& other : plugin_files_in(file.parent_path())) known.insert(other.filename().string());
  }
  const std::string near = nearest_name(wanted.filename().string(), known);
  throw PluginError("plugin \"" + path.string() + "\": find: no such file: " + text +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

}  // namespace espalier::app
