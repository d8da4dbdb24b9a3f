// How a process ends that has loaded plugins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "espalier/error.hpp"
#include "sdk/spawn.hpp"

namespace espalier {
namespace {

using sdk_test::Ended;
using sdk_test::spawn;
using testing::HasSubstr;

Ended probe(const std::string& names) { return spawn(SDK_PROBE " " SDK_PLUGIN_DIR " " + names); }

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
