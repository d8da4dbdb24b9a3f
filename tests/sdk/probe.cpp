// sdk_probe FOLDER NAME...: loads the plugins in this order and returns 0; a name "early" returns 5 at once.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/plugin_host.hpp"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    std::vector<std::unique_ptr<espalier::LoadedPlugin>> loaded;
    for (int i = 2; i < argc; ++i) {
      if (std::string_view(argv[i]) == "early") return 5;
      const std::filesystem::path folder = argv[1];
      loaded.push_back(espalier::load_plugin_file(folder / ("lib" + std::string(argv[i]) + ".so"), argv[i]));
      const espalier::LoadedPlugin& plugin = *loaded.back();
      std::printf("%s %s\n", std::string(plugin.name()).c_str(), std::string(plugin.version()).c_str());
    }
  } catch (const espalier::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
