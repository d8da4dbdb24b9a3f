// Making objects: what goes wrong in a plugin's factory, and what objects need to live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sdk/host_support.hpp"

namespace espalier {
namespace {

using namespace sdk_test;
using testing::ElementsAre;
using testing::HasSubstr;

// The options of sdk_good as a recipe would give them.
ConfigTable options(const std::string& fail) {
  ConfigTable table;
  table.source = {"recipe.toml", 4, 1, "recipe"};
  table.values.emplace("fail", ConfigValue{fail, {"recipe.toml", 5, 8, "recipe"}});
  return table;
}

Owned<Monitor> make(PluginHost& host, const std::string& fail, TestContext& context, ConfigTable& table) {
  const LoadedPlugin& plugin = host.load("sdk_good");
  table = options(fail);
  std::vector<ConfigProblem> problems;
  check_options(table, "monitor", plugin.options<Monitor>(), {}, problems);
  throw_if_any(problems);
  return host.create<Monitor>(plugin, ConfigView(table, "monitor"), context);
}

std::string failure(const std::string& fail, ExitCode expected) {
  PluginHost host({SDK_PLUGIN_DIR});
  TestContext context;
  ConfigTable table;
  return message_of([&] { make(host, fail, context, table); }, expected);
}

const std::string kTitle = "plugin \"sdk_good\" (" SDK_PLUGIN_DIR "/libsdk_good.so)";

TEST(Create, WrapsWhatAFactoryThrows) {
  EXPECT_EQ(failure("std", ExitCode::plugin), kTitle + ": create: an error of the C++ library [std::out_of_range]");
  EXPECT_EQ(failure("error", ExitCode::plugin), kTitle + ": create: an error of Espalier [espalier::Error]");
  EXPECT_THAT(failure("int", ExitCode::plugin), HasSubstr(kTitle + ": create: it threw an exception of type int"));
  EXPECT_EQ(failure("null", ExitCode::plugin), kTitle + ": create: its factory \"good\" made nothing");
}

TEST(Create, KeepsTheClassOfErrorsThatAUserCanActOn) {
  EXPECT_EQ(failure("config", ExitCode::usage),
            "recipe.toml:4:1: monitor.size: does not fit the model (" + kTitle + ": create)");
  EXPECT_THAT(failure("io", ExitCode::io), HasSubstr("/data/train.idx: open: No such file or directory"));
}

TEST(Create, ObjectsOutliveTheHost) {
  TestContext context;
  ConfigTable table;
  Owned<Monitor> monitor;
  {
    PluginHost host({SDK_PLUGIN_DIR});
    monitor = make(host, "no", context, table);
  }
  monitor->event({}, "still here", "");
  EXPECT_THAT(context.lines, ElementsAre("made with size 3", "still here"));
  monitor.reset();
}

TEST(Create, TypesAndErrorsCrossTheBorder) {
  PluginHost host({SDK_PLUGIN_DIR});
  TestContext context;
  ConfigTable table;
  const Owned<Monitor> monitor = make(host, "no", context, table);
  const auto* const dataset = dynamic_cast<Dataset*>(monitor.get());
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->sample_tokens(), 7);
  EXPECT_EQ(dynamic_cast<Tokenizer*>(monitor.get()), nullptr);
  EXPECT_THROW(monitor->event({}, "throw", ""), NumericsError);
}

TEST(Create, OwnWrapsTheProgramsObjects) {
  static int alive = 0;
  struct Silent : Monitor {
    Silent() { ++alive; }
    ~Silent() override { --alive; }
    void metrics(const Progress& /*progress*/, std::span<const Metric> /*metrics*/) override {}
    void event(const Progress& /*progress*/, std::string_view /*kind*/, std::string_view /*text*/) override {}
    void flush() override {}
    void resume(const Progress& /*progress*/) override {}
  };
  Owned<Monitor> monitor = own<Monitor>(std::make_unique<Silent>());
  EXPECT_EQ(alive, 1);
  monitor.reset();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace espalier
