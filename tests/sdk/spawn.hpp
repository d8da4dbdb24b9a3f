#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace espalier::sdk_test {

struct Ended {
  int status = -1;  ///< exit code, or -1 when a signal ended it
  std::string output;
};

/// Runs a shell command; its output and errors together.
inline Ended spawn(const std::string& command) {
  Ended result;
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char block[4096];
  while (const auto count = std::fread(block, 1, sizeof(block), pipe)) result.output.append(block, count);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

}  // namespace espalier::sdk_test
