#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "host/plugin_host.hpp"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using app::plugin_search_path;
using app::PluginHost;
using testing::ElementsAre;

class SearchPath : public testing::Test {
 protected:
  ~SearchPath() override { unsetenv("ESPALIER_PLUGIN_PATH"); }
};

TEST_F(SearchPath, RecipeThenItsListThenEnvironmentThenInstalled) {
  setenv("ESPALIER_PLUGIN_PATH", "/env/one::/env/two/", 1);
  const std::array<fs::path, 2> listed = {"./mine", "/absolute"};
  EXPECT_THAT(
      plugin_search_path("/recipes", listed, "/usr/lib/espalier/plugins"),
      ElementsAre("/recipes", "/recipes/mine", "/absolute", "/env/one", "/env/two", "/usr/lib/espalier/plugins"));
}

TEST_F(SearchPath, NoFolderTwice) {
  setenv("ESPALIER_PLUGIN_PATH", "/a/../installed", 1);
  const std::array<fs::path, 2> listed = {"", "."};
  EXPECT_THAT(plugin_search_path("/recipes/", listed, "/installed"), ElementsAre("/recipes", "/installed"));
}

TEST_F(SearchPath, RelativeFoldersBecomeAbsolute) {
  EXPECT_THAT(plugin_search_path("recipes", {}, ""), ElementsAre(fs::current_path() / "recipes"));
}

TEST_F(SearchPath, TheFirstFolderWins) {
  // Two files of one name that are no plugins: the message tells which one was taken.
  const fs::path root = fs::path(testing::TempDir()) / ("espalier-first-" + std::to_string(::getpid()));
  for (const char* const folder : {"a", "b"}) {
    fs::create_directories(root / folder / "libx.so");
  }
  PluginHost host({root / "a", root / "b"});
  try {
    host.load("x");
    ADD_FAILURE() << "a folder was loaded";
  } catch (const PluginError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr((root / "a" / "libx.so").string()));
  }
  fs::remove_all(root);
}

}  // namespace
}  // namespace espalier
