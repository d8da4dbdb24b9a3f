// Check 9: a plugin that is missing, different or failing on one rank ends the phase on all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sdk/host_support.hpp"
#include "support/mpi_test.hpp"

namespace espalier {
namespace {

using namespace sdk_test;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kGood = SDK_PLUGIN_DIR "/libsdk_good.so";

class Agree : public testing::Test {
 protected:
  void SetUp() override { ESPALIER_REQUIRE_RANKS(2); }

  // Loads sdk_good on every rank, from `folder` where it is the odd one, and returns what agree_on says, on every rank.
  std::string agreement(const std::filesystem::path& folder, ExitCode expected = ExitCode::plugin) {
    PluginHost host({odd() ? folder : std::filesystem::path(SDK_PLUGIN_DIR)});
    try {
      host.load("sdk_good");
    } catch (const PluginError&) {
      EXPECT_TRUE(odd());
    }
    return message_of([&] { host.agree_on(world()); }, expected);
  }

  static bool odd() { return world().rank() == world().size() - 1; }
  static std::string odd_rank() { return "rank " + std::to_string(world().size() - 1); }
  static Communicator& world() { return *world_; }
  // The world goes before main finalises MPI.
  static void SetUpTestSuite() { world_ = make_world_communicator(); }
  static void TearDownTestSuite() { world_.reset(); }

 private:
  static inline std::unique_ptr<Communicator> world_;
};

TEST_F(Agree, TheSamePluginEverywhere) {
  // Each rank has a copy of its own: the path does not count, what is in the file does.
  const TemporaryFolder folder;
  std::filesystem::copy_file(kGood, folder.path() / "libsdk_good.so");
  PluginHost host({folder.path()});
  host.load("sdk_good");
  EXPECT_NO_THROW(host.agree_on(world()));
}

TEST_F(Agree, AMissingPluginOnOneRankEndsAll) {
  EXPECT_THAT(agreement("/nowhere"),
              StartsWith(odd_rank() + ": plugin \"sdk_good\": find: libsdk_good.so is not in /nowhere"));
}

TEST_F(Agree, AnotherBuildOnOneRankEndsAll) {
  const TemporaryFolder folder;
  write_file(folder.path() / "libsdk_good.so", read_file(kGood) + "one byte more");
  EXPECT_THAT(agreement(folder.path()),
              AllOf(StartsWith("agree: the ranks loaded different plugins: " + odd_rank() +
                               " has plugin \"sdk_good\" version 1.2.3"),
                    HasSubstr("rank 0 has plugin \"sdk_good\""), HasSubstr("install the same files on every host")));
}

TEST_F(Agree, OneMoreOnOneRankEndsAll) {
  PluginHost host({SDK_PLUGIN_DIR});
  host.load("sdk_good");
  if (odd()) host.load("sdk_good");
  EXPECT_THAT(message_of([&] { host.agree_on(world()); }), HasSubstr("; rank 0 has nothing more;"));
}

TEST_F(Agree, WhatFailsEverywhereNamesNoRank) {
  PluginHost host({SDK_PLUGIN_DIR});
  EXPECT_THROW(host.load("sdk_godo"), PluginError);
  EXPECT_THAT(message_of([&] { host.agree_on(world()); }), StartsWith("plugin \"sdk_godo\": find:"));
}

TEST_F(Agree, AFactoryThatFailsOnOneRankKeepsItsExitCode) {
  PluginHost host({SDK_PLUGIN_DIR});
  const LoadedPlugin& plugin = host.load("sdk_good");
  ConfigTable table;
  table.values.emplace("fail", ConfigValue{std::string(odd() ? "io" : "no"), {}});
  std::vector<ConfigProblem> problems;
  check_options(table, "monitor", plugin.options<Monitor>(), {}, problems);
  ASSERT_TRUE(problems.empty());
  TestContext context;
  Owned<Monitor> monitor;
  try {
    monitor = host.create<Monitor>(plugin, ConfigView(table, "monitor"), context);
  } catch (const IoError&) {
    EXPECT_TRUE(odd());
  }
  EXPECT_THAT(message_of([&] { host.agree_on(world()); }, ExitCode::io),
              StartsWith(odd_rank() + ": /data/train.idx: open"));
  // The next phase starts afresh.
  host.load("sdk_good");
  EXPECT_NO_THROW(host.agree_on(world()));
}

}  // namespace
}  // namespace espalier
