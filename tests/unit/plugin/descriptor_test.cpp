// Checks 4 to 7 on descriptors that are linked in, damaged in one place each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "sdk/host_support.hpp"
#include "sdk/plugins/bad.hpp"

extern "C" const espalier::PluginDescriptor espalier_plugin_v1_sdk_good;

namespace espalier {
namespace {

using namespace sdk_test;
using testing::HasSubstr;

PluginDescriptor sound() { return builtin_descriptor("built", "for tests", kFactories); }

std::string refusal(const std::function<void(PluginDescriptor&)>& damage) {
  PluginDescriptor descriptor = sound();
  damage(descriptor);
  PluginHost host({});
  return message_of([&] { host.add_builtin(descriptor); });
}

TEST(Descriptor, ASoundOneIsKnownByItsName) {
  static const PluginDescriptor descriptor = sound();
  PluginHost host({});
  host.add_builtin(descriptor);
  const LoadedPlugin& plugin = host.load("built");
  EXPECT_EQ(plugin.title(), "plugin \"built\" (built in)");
  EXPECT_EQ(plugin.content(), 0U);
  EXPECT_EQ(&host.load("built", "cpu"), &plugin);
  ASSERT_EQ(host.list().size(), 1U);
  EXPECT_EQ(host.list()[0].plugin, &plugin);
}

TEST(Descriptor, NearestNamesIncludeWhatIsBuiltIn) {
  static const PluginDescriptor descriptor = sound();
  PluginHost host({});
  host.add_builtin(descriptor);
  EXPECT_THAT(message_of([&] { host.load("bilt"); }), HasSubstr("did you mean \"built\"?"));
  EXPECT_THAT(message_of([&] { host.load("optim_bf16"); }), HasSubstr("known: \"built\""));
  EXPECT_THAT(message_of([&] { host.load("built", "cuda"); }), HasSubstr("not its variant for the device \"cuda\""));
}

TEST(Descriptor, LayoutIsCheckedBeforeAnythingElse) {
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.magic ^= 1U; }), HasSubstr("layout: its descriptor does not start"));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.struct_size -= 8; }),
              HasSubstr("layout: its descriptor has " + std::to_string(sizeof(PluginDescriptor) - 8) +
                        " bytes, this core needs " + std::to_string(sizeof(PluginDescriptor))));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.abi_major += 1; }), HasSubstr("layout: it has plugin interface"));
}

TEST(Descriptor, ALongerOneIsTaken) {
  PluginDescriptor descriptor = sound();
  descriptor.struct_size += 8;  // of a later minor version: what it appended is not looked at
  PluginHost host({});
  EXPECT_NO_THROW(host.add_builtin(descriptor));
}

TEST(Descriptor, NullMembersAreFound) {
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.name = nullptr; }), HasSubstr("a null member"));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.version = nullptr; }), HasSubstr("a null member"));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.licence = nullptr; }), HasSubstr("a null member"));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.summary = nullptr; }), HasSubstr("a null member"));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.abi_id = nullptr; }), HasSubstr("a null member"));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.core_identity = nullptr; }), HasSubstr("a null member"));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.factories = nullptr; }), HasSubstr("no factory"));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.factory_count = 0; }), HasSubstr("no factory"));
}

TEST(Descriptor, FactoriesAreWholeAndOneOfAKind) {
  static Factory factories[] = {kFactories[0], kFactories[0]};
  const auto refuse = [&](std::size_t count) {
    return refusal([&](PluginDescriptor& d) {
      d.factories = factories;
      d.factory_count = count;
    });
  };
  EXPECT_THAT(refuse(2), HasSubstr("two factories of the kind monitor"));
  factories[0].destroy = nullptr;
  EXPECT_THAT(refuse(1), HasSubstr("a null member in factory 0"));
  factories[0] = kFactories[0];
  factories[0].option_count = 1;
  EXPECT_THAT(refuse(1), HasSubstr("a null member in factory 0"));
}

TEST(Descriptor, BuildAndCoreAreComparedToo) {
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.abi_id = "itanium libc++"; }),
              HasSubstr("build: is built for another core: libc++ against libstdc++, nothing against cxx11abi=1"));
  EXPECT_THAT(refusal([](PluginDescriptor& d) { d.core_identity = [] { return static_cast<const void*>(""); }; }),
              HasSubstr("core: it brings a core of its own"));
}

TEST(Descriptor, AStaticTwinNeedsNoFile) {
  PluginHost host({});
  host.add_builtin(espalier_plugin_v1_sdk_good);
  const LoadedPlugin& plugin = host.load("sdk_good");
  EXPECT_EQ(plugin.version(), "1.2.3");
  ConfigTable table;
  std::vector<ConfigProblem> problems;
  check_options(table, "monitor", plugin.options<Monitor>(), {}, problems);
  TestContext context;
  const Owned<Monitor> monitor = host.create<Monitor>(plugin, ConfigView(table, "monitor"), context);
  EXPECT_EQ(context.lines.size(), 1U);
}

}  // namespace
}  // namespace espalier
