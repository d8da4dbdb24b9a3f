// Every check of the handshake fails once, with its own message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <xmmintrin.h>

#include <cstdlib>

#include "sdk/host_support.hpp"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using namespace sdk_test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const fs::path kDir = SDK_PLUGIN_DIR;
const fs::path kGood = kDir / "libsdk_good.so";

std::string refusal(const std::string& name, const std::string& device = "") {
  PluginHost host({kDir});
  return message_of([&] { host.load(name, device); });
}

// What the host says about a file with these bytes.
std::string refusal_of_bytes(std::string_view bytes) {
  const TemporaryFolder folder;
  write_file(folder.path() / "libsdk_file.so", bytes);
  PluginHost host({folder.path()});
  const std::string message = message_of([&] { host.load("sdk_file"); });
  EXPECT_THAT(message, StartsWith("plugin \"sdk_file\" (" + (folder.path() / "libsdk_file.so").string() + "): "));
  return message;
}

TEST(Handshake, AGoodPluginLoads) {
  PluginHost host({"/nowhere", kDir});
  const LoadedPlugin& plugin = host.load("sdk_good");
  EXPECT_EQ(plugin.name(), "sdk_good");
  EXPECT_EQ(plugin.version(), "1.2.3");
  EXPECT_EQ(plugin.path(), kGood);
  EXPECT_EQ(plugin.options<Monitor>().size(), 2U);
  EXPECT_NE(plugin.content(), 0U);
  EXPECT_EQ(&host.load("sdk_good"), &plugin);
  EXPECT_EQ(&host.load("sdk_good", "cpu"), &plugin);
  EXPECT_EQ(&host.load(kGood.string()), &plugin);
}

TEST(Handshake, FindNamesEveryPlaceAndTheNearestName) {
  PluginHost host({"/nowhere/at/all", kDir});
  EXPECT_EQ(message_of([&] { host.load("sdk_godo"); }),
            "plugin \"sdk_godo\": find: libsdk_godo.so is not in /nowhere/at/all (no such folder), " + kDir.string() +
                "; did you mean \"sdk_good\"?");
}

TEST(Handshake, FindSaysWhenOnlyTheVariantIsMissing) {
  EXPECT_THAT(refusal("sdk_good", "cuda"),
              AllOf(StartsWith("plugin \"sdk_good_cuda\": find: libsdk_good_cuda.so is not in"),
                    HasSubstr("\"sdk_good\" is there, but not its variant for the device \"cuda\"")));
}

TEST(Handshake, FindTellsAnEmptySearchPath) {
  PluginHost host({});
  EXPECT_THAT(message_of([&] { host.load("sdk_good"); }), HasSubstr("nowhere (the search path is empty)"));
}

TEST(Handshake, FindRefusesAMissingPath) {
  PluginHost host({kDir});
  EXPECT_THAT(message_of([&] { host.load((kDir / "libsdk_goo.so").string()); }),
              AllOf(HasSubstr("find: no such file: " + (kDir / "libsdk_goo.so").string()),
                    HasSubstr("did you mean \"libsdk_good.so\"?")));
  EXPECT_THAT(message_of([&] { host.load("/etc/hostname"); }),
              HasSubstr("the file of a plugin is called lib<name>.so"));
}

TEST(Handshake, FindTakesRelativePathsFromTheSearchPath) {
  PluginHost host({kDir.parent_path()});
  EXPECT_EQ(host.load("plugins/libsdk_good.so").path(), kGood);
  EXPECT_EQ(host.load("./plugins/libsdk_good.so").path(), kGood);
}

TEST(Handshake, FindRefusesAStrangeDeviceOrAnEmptyName) {
  EXPECT_THAT(refusal("sdk_good", "../x"), HasSubstr("device \"../x\" is no name"));
  EXPECT_THAT(refusal(""), HasSubstr("a plugin needs a name"));
}

TEST(Handshake, AFolderIsNoPlugin) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "libsdk_file.so");
  PluginHost host({folder.path()});
  EXPECT_THAT(message_of([&] { host.load("sdk_file"); }), HasSubstr("is a folder, not a plugin"));
  ASSERT_EQ(::mkfifo((folder.path() / "libsdk_pipe.so").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { host.load("sdk_pipe"); }), HasSubstr("is no regular file"));
}

TEST(Handshake, TextIsNoPlugin) {
  EXPECT_THAT(refusal_of_bytes("#!/bin/sh\nexit 0\n"), HasSubstr("is not an ELF file"));
  EXPECT_THAT(refusal_of_bytes(""), HasSubstr("is not an ELF file: it has 0 bytes"));
}

TEST(Handshake, ATruncatedFileIsRefusedWhereverItEnds) {
  const std::string whole = read_file(kGood);
  ASSERT_GT(whole.size(), 10000U);
  EXPECT_THAT(refusal_of_bytes(std::string_view(whole).substr(0, whole.size() - 1)), HasSubstr("is truncated: it has"));
  for (std::size_t size = 4; size < whole.size(); size += size < 80 ? 1 : 997) {
    EXPECT_THAT(refusal_of_bytes(std::string_view(whole).substr(0, size)), HasSubstr("is truncated")) << size;
  }
}

TEST(Handshake, AnotherMachinesFileIsRefused) {
  std::string whole = read_file(kGood);
  whole[18] = static_cast<char>(183);  // e_machine: AArch64
  whole[19] = 0;
  EXPECT_THAT(refusal_of_bytes(whole), HasSubstr("is built for another machine: AArch64, this program is x86-64"));
}

TEST(Handshake, AnObjectFileIsRefused) {
  std::string whole = read_file(kGood);
  whole[16] = 1;  // e_type: ET_REL
  EXPECT_THAT(refusal_of_bytes(whole), HasSubstr("is no shared library"));
}

TEST(Handshake, AnotherLibraryIsNoPlugin) {
  EXPECT_THAT(refusal("sdk_no_identity"),
              HasSubstr("is a shared library, but not an Espalier plugin: it has no section espalier_id"));
  EXPECT_THAT(refusal("sdk_damaged_identity"), HasSubstr("has a damaged identity"));
}

TEST(Handshake, EntryNamesTheSymbol) {
  EXPECT_THAT(refusal("sdk_no_entry"),
              HasSubstr("entry: is not an Espalier plugin: it does not export espalier_plugin_v1"));
}

TEST(Handshake, OpenPassesOnTheLinkersText) {
  EXPECT_THAT(refusal("sdk_undefined_symbol"),
              HasSubstr("open: the dynamic linker refuses it: undefined symbol: _ZN11sdk_nowhere11to_be_foundEi "
                        "[sdk_nowhere::to_be_found(int)]"));
  EXPECT_THAT(refusal("sdk_missing_dependency"),
              HasSubstr("open: the dynamic linker refuses it: libsdk_gone.so: cannot open shared object file: "
                        "No such file or directory"));
  EXPECT_THAT(refusal("sdk_missing_dependency"), Not(HasSubstr("Bad file descriptor")));
}

TEST(Handshake, OpenRefusesAPluginOfAnotherCoreVersion) {
  EXPECT_THAT(refusal("sdk_needs_old_core"), HasSubstr("libespalier_core.so.0.0: cannot open shared object file"));
}

/// Rounding and flush-to-zero bits; the lowest six are sticky flags of what was computed before.
unsigned floating_point_mode() { return _mm_getcsr() & ~0x3fU; }

TEST(Handshake, OpenKeepsTheFloatingPointMode) {
  const unsigned before = floating_point_mode();
  PluginHost({kDir}).load("sdk_good");
  EXPECT_EQ(floating_point_mode(), before);
  // Refused, put back, and refused again: initialisers run only at the first attempt.
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THAT(refusal("sdk_fast_math"), HasSubstr("open: changes the floating-point mode of the whole process"));
    EXPECT_EQ(floating_point_mode(), before);
  }
}

TEST(Handshake, LayoutNamesBothVersions) {
  EXPECT_THAT(refusal("sdk_other_interface"),
              HasSubstr("layout: it has plugin interface 99.0, this core " + std::to_string(ESPALIER_ABI_MAJOR) + "." +
                        std::to_string(ESPALIER_ABI_MINOR)));
}

TEST(Handshake, BuildNamesWhatDiffersAndBothSides) {
  EXPECT_THAT(
      refusal("sdk_other_headers"),
      AllOf(
          HasSubstr("build: is built for another core: headers=0123456789abcdef against headers=" ESPALIER_HEADER_HASH),
          HasSubstr("this core: \"" ESPALIER_ABI_ID "\"")));
  EXPECT_THAT(refusal("sdk_other_strings"), HasSubstr("is built for another core: cxx11abi=0 against cxx11abi=1"));
}

TEST(Handshake, ARefusedBuildRunsNoCode) {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "ran";
  ASSERT_EQ(setenv("SDK_TRACE_FILE", trace.c_str(), 1), 0);
  EXPECT_THAT(refusal("sdk_other_headers"), HasSubstr("build:"));
  PluginHost({kDir}).list();
  unsetenv("SDK_TRACE_FILE");
  EXPECT_FALSE(fs::exists(trace));
}

TEST(Handshake, CoreFindsASecondOne) {
  EXPECT_THAT(refusal("sdk_second_core"), HasSubstr("core: it brings a core of its own"));
}

TEST(Handshake, IdentityComparesTheNames) {
  EXPECT_THAT(refusal("sdk_misnamed"), HasSubstr("identity: the file calls itself \"sdk_good\""));
}

TEST(Handshake, IdentityNamesWhatThePluginOffers) {
  PluginHost host({kDir});
  EXPECT_EQ(message_of([&] { host.load("sdk_good").factory("optimizer"); }),
            "plugin \"sdk_good\" (" + kGood.string() +
                "): identity: the recipe asks for a plugin of the kind optimizer, it offers monitor \"good\"");
}

TEST(Handshake, ListTellsUsableFromRefused) {
  PluginHost host({kDir});
  std::map<std::string, PluginListing> listed;
  for (PluginListing& listing : host.list()) listed.emplace(listing.name, listing);
  ASSERT_TRUE(listed.contains("sdk_good"));
  EXPECT_EQ(listed["sdk_good"].problem, "");
  EXPECT_EQ(listed["sdk_good"].version, "1.2.3");
  ASSERT_NE(listed["sdk_good"].plugin, nullptr);
  EXPECT_STREQ(listed["sdk_good"].plugin->descriptor().summary, "Does nothing wrong");
  EXPECT_THAT(listed["sdk_other_headers"].problem, HasSubstr("is built for another core"));
  EXPECT_EQ(listed["sdk_other_headers"].version, "1.0.0");
  EXPECT_THAT(listed["sdk_no_identity"].problem, HasSubstr("not an Espalier plugin"));
  EXPECT_EQ(listed["sdk_no_identity"].plugin, nullptr);
}

TEST(Handshake, ListTellsWhatIsHidden) {
  const TemporaryFolder folder;
  fs::copy_file(kGood, folder.path() / "libsdk_good.so");
  PluginHost host({folder.path(), kDir});
  std::string hidden;
  for (const PluginListing& listing : host.list()) {
    if (listing.path == kGood) hidden = listing.problem;
  }
  EXPECT_EQ(hidden, "hidden by " + (folder.path() / "libsdk_good.so").string());
}

}  // namespace
}  // namespace espalier
