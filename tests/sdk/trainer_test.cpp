// The trainer and plugins that it must refuse: its message, its exit code, on one rank and on two, without a hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sdk/host_support.hpp"
#include "sdk/spawn.hpp"

namespace espalier {
namespace {

using namespace sdk_test;
using testing::AllOf;
using testing::HasSubstr;

// The time limit turns a hang into a failure that names the case.
std::string train(const std::string& run_dir, const std::string& set) {
  return "timeout 30 " TRAINER_EXE " train " ESPALIER_SOURCE_DIR "/tests/sdk/outside/lion.toml --set run.dir=" +
         run_dir + " --set 'plugins.search_path=[\"" SDK_PLUGIN_DIR "\"]' " + set;
}

const std::string kTwoRanks = " --set parallel.data.plugin=parallel_zero";

struct Refused {
  const char* title;
  const char* set;
  const char* message;
};

class TrainerRefuses : public testing::TestWithParam<Refused> {
 protected:
  TemporaryFolder folder_;
  std::string run_dir_ = (folder_.path() / "run").string();
};

TEST_P(TrainerRefuses, OnOneRank) {
  const Ended ended = spawn(train(run_dir_, GetParam().set));
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::plugin)) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr(GetParam().message));
}

TEST_P(TrainerRefuses, OnTwoRanks) {
  const Ended ended = spawn(MPIEXEC " -n 2 " + train(run_dir_, GetParam().set + kTwoRanks));
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::plugin)) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Plugins, TrainerRefuses,
    testing::Values(Refused{"Missing", "--set optimizer.plugin=sdk_godo", "find: libsdk_godo.so is not in"},
                    Refused{"NoPlugin", "--set optimizer.plugin=sdk_no_identity",
                            "is a shared library, but not an Espalier plugin"},
                    Refused{"AnotherCore", "--set optimizer.plugin=sdk_other_headers",
                            "build: is built for another core: headers="},
                    Refused{"WrongKind", "--set optimizer.plugin=sdk_good",
                            "the recipe asks for a plugin of the kind optimizer, it offers monitor \"good\""},
                    Refused{"Throwing", "--set optimizer.plugin=sdk_throws",
                            "create: cannot work like this [std::runtime_error]"},
                    Refused{"ThrowingAnInteger", "--set optimizer.plugin=sdk_throws --set optimizer.plain=true",
                            "create: it threw an exception of type int"}),
    [](const auto& test) { return std::string(test.param.title); });

TEST(TrainerOnTwoRanks, AFactoryThatThrowsOnOneRankEndsAll) {
  const TemporaryFolder folder;
  const Ended ended =
      spawn(MPIEXEC " -n 2 " + train((folder.path() / "run").string(),
                                     "--set optimizer.plugin=sdk_throws --set optimizer.rank=1" + kTwoRanks));
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::plugin)) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("rank 1: plugin \"sdk_throws\""));
}

TEST(TrainerOnTwoRanks, DifferentBuildsOfAPluginEndAll) {
  const TemporaryFolder folder;
  write_file(folder.path() / "liboptim_fp32.so", read_file(ESPALIER_PLUGIN_DIR "/liboptim_fp32.so") + "one byte more");
  const std::string command = train((folder.path() / "run").string(), "--set optimizer.plugin=optim_fp32" + kTwoRanks);
  const Ended ended =
      spawn(MPIEXEC " -n 1 " + command + " : -n 1 env ESPALIER_PLUGIN_PATH=" + folder.path().string() + " " + command);
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::plugin)) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("the ranks loaded different plugins: rank 1 has plugin \"optim_fp32\""),
                                  HasSubstr("rank 0 has plugin \"optim_fp32\"")));
}

TEST(TrainerOnTwoRanks, APluginMissingOnOneRankEndsAll) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(SDK_PLUGIN_DIR "/libsdk_throws.so", folder.path() / "libsdk_throws.so");
  // No search path in this recipe: rank 0 finds the plugin through its environment, rank 1 does not.
  const std::string command = "timeout 30 " TRAINER_EXE " train " ESPALIER_SOURCE_DIR
                              "/tests/sdk/outside/lion.toml --set run.dir=" +
                              (folder.path() / "run").string() + " --set optimizer.plugin=sdk_throws" + kTwoRanks;
  const Ended ended =
      spawn(MPIEXEC " -n 1 env ESPALIER_PLUGIN_PATH=" + folder.path().string() + " " + command + " : -n 1 " + command);
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::plugin)) << ended.output;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("rank 1: "), HasSubstr("find: libsdk_throws.so is not in")));
}

}  // namespace
}  // namespace espalier
