#include "program.hpp"

#include <system_error>

namespace espalier::app {

std::filesystem::path program_dir() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::current_path() : path.parent_path();
}

std::filesystem::path installed_plugin_dir() {
  return (program_dir() / "../lib/espalier/plugins").lexically_normal();
}

}  // namespace espalier::app
