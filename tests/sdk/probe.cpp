// sdk_probe FOLDER NAME...: loads the plugins in this order and returns 0; a name "early" returns 5 at once.
#include <cstdio>
#include <string_view>

#include "espalier/plugin_host.hpp"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    espalier::PluginHost host({argv[1]});
    for (int i = 2; i < argc; ++i) {
      if (std::string_view(argv[i]) == "early") return 5;
      const auto& plugin = host.load(argv[i]);
      std::printf("%s %s\n", std::string(plugin.name()).c_str(), std::string(plugin.version()).c_str());
    }
  } catch (const espalier::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
