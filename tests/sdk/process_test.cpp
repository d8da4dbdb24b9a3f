// How a process ends that has loaded plugins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>

#include "sdk/host_support.hpp"

namespace espalier {
namespace {

using testing::HasSubstr;

struct Ended {
  int status = -1;  // exit code, or -1 when a signal ended it
  std::string output;
};

Ended probe(const std::string& names) {
  Ended result;
  std::FILE* const pipe = popen((SDK_PROBE " " SDK_PLUGIN_DIR " " + names + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char block[256];
  while (const auto count = std::fread(block, 1, sizeof(block), pipe)) result.output.append(block, count);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

TEST(ProcessEnd, PluginsThatShareALibraryEndInAnyOrder) {
  for (const char* const names : {"sdk_logs_one sdk_logs_two", "sdk_logs_two sdk_logs_one"}) {
    const Ended ended = probe(names);
    EXPECT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("sdk_logs_one ends"));
    EXPECT_THAT(ended.output, HasSubstr("sdk_logs_two ends"));
  }
}

TEST(ProcessEnd, AnEarlyReturnIsNoDifferent) {
  const Ended ended = probe("sdk_logs_one sdk_logs_two early");
  EXPECT_EQ(ended.status, 5) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("sdk_logs_two ends"));
}

TEST(ProcessEnd, ARefusedPluginEndsWithItsCode) {
  EXPECT_EQ(probe("sdk_logs_one sdk_second_core").status, static_cast<int>(ExitCode::plugin));
}

}  // namespace
}  // namespace espalier
