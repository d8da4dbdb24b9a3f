#include "espalier/error.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

namespace espalier {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsChangesAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("lr", "rl"), 1u) << "neighbours swapped";
  EXPECT_EQ(edit_distance("ca", "abc"), 3u) << "optimal string alignment: a swapped pair is not edited again";
  EXPECT_EQ(edit_distance("warmup_samples", "warmup_sample"), 1u);
}

TEST(NearestName, IsTheNearestOrNothing) {
  const std::vector<std::string> known{"batch_size", "seq_length", "lr"};
  EXPECT_EQ(nearest_name("bach_size", known), "batch_size");
  EXPECT_EQ(nearest_name("sequence_length", known), "seq_length");
  EXPECT_EQ(nearest_name("zzzz", known), "") << "farther than half the word";
  EXPECT_EQ(nearest_name("lr", std::vector<std::string>{}), "");
}

TEST(Errors, NameTheirExitCodes) {
  EXPECT_EQ(ConfigError("x").exit_code(), ExitCode::usage);
  EXPECT_EQ(PluginError("x").exit_code(), ExitCode::plugin);
  EXPECT_EQ(IoError("x").exit_code(), ExitCode::io);
  EXPECT_EQ(CommError("x").exit_code(), ExitCode::communication);
  EXPECT_EQ(DeviceError("x").exit_code(), ExitCode::device);
  EXPECT_EQ(NumericsError("x").exit_code(), ExitCode::numerics);
}

TEST(Errors, IoErrorSaysWhatTheSystemSaid) {
  const std::string text = IoError("/data/a.bin", "writing 4096 bytes", ENOSPC).what();
  EXPECT_NE(text.find("/data/a.bin"), std::string::npos) << text;
  EXPECT_NE(text.find("writing 4096 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("No space left on device"), std::string::npos) << text;
  EXPECT_NE(text.find("28"), std::string::npos) << text;
}

TEST(AssertionDeathTest, NamesExpressionAndPlace) {
  const int rows = 3;
  EXPECT_DEATH(ESPALIER_ASSERT(rows == 4), "rows == 4.*error_test.cpp|error_test.cpp.*rows == 4");
}

}  // namespace
}  // namespace espalier
