#include "espalier/error.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace espalier {

Error::Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
Error::~Error() = default;

ConfigError::ConfigError(const std::string& message) : Error(ExitCode::usage, message) {}
ConfigError::~ConfigError() = default;

PluginError::PluginError(const std::string& message) : Error(ExitCode::plugin, message) {}
PluginError::~PluginError() = default;

ShapeError::ShapeError(const std::string& message) : Error(ExitCode::internal, message) {}
ShapeError::~ShapeError() = default;

IoError::IoError(const std::string& message) : Error(ExitCode::io, message) {}
IoError::IoError(std::string_view path, std::string_view what, int errno_value)
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's text of an unknown number lies in memory of the calling thread
    : Error(ExitCode::io, std::string(path) + ": " + std::string(what) + ": " + std::strerror(errno_value) + " (errno " +
                              std::to_string(errno_value) + ")") {}
IoError::~IoError() = default;

CommError::CommError(const std::string& message) : Error(ExitCode::communication, message) {}
CommError::~CommError() = default;

DeviceError::DeviceError(const std::string& message) : Error(ExitCode::device, message) {}
DeviceError::~DeviceError() = default;

NumericsError::NumericsError(const std::string& message) : Error(ExitCode::numerics, message) {}
NumericsError::~NumericsError() = default;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows suffice: a swap of neighbours looks two rows back.
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

void assertion_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "espalier: internal error: %s does not hold (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace espalier
