#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "unit/config_core/make_config.hpp"

namespace espalier {
namespace {

using namespace testing_support;
using testing::ElementsAre;

class ConfigViewTest : public testing::Test {
 protected:
  ConfigViewTest() {
    static constexpr OptionSpec kInner = {"path", OptionType::string, nullptr, ""};
    std::array<OptionSpec, 9> specs = {OptionSpec{"flag", OptionType::boolean, "false", ""},
                                       OptionSpec{"layers", OptionType::integer, "2", ""},
                                       OptionSpec{"lr", OptionType::number, "0.5", ""},
                                       OptionSpec{"name", OptionType::string, "\"a\"", ""},
                                       OptionSpec{"sizes", OptionType::integers, "[1, 2]", ""},
                                       OptionSpec{"betas", OptionType::numbers, "[0.9, 1]", ""},
                                       OptionSpec{"words", OptionType::strings, "[\"x\"]", ""},
                                       OptionSpec{"inner", OptionType::table, "", ""},
                                       OptionSpec{"sets", OptionType::tables, "[]", ""}};
    for (std::size_t i : {7U, 8U}) {
      specs[i].nested = &kInner;
      specs[i].nested_count = 1;
    }
    std::vector<ConfigProblem> found;
    check_options(table_, "data", specs, {}, found);
    throw_if_any(found);
  }

  ConfigTable table_ = table(
      {{"lr", at(2, 1, integer(1))},
       {"sets",
        at(3, 1, array({nested({{"path", at(4, 1, text("p"))}}, 4), nested({{"path", at(5, 1, text("q"))}}, 5)}))}});
  ConfigView view_{table_, "data"};
};

TEST_F(ConfigViewTest, ReadsWhatIsDeclared) {
  EXPECT_FALSE(view_.boolean("flag"));
  EXPECT_EQ(view_.integer("layers"), 2);
  EXPECT_EQ(view_.number("lr"), 1.0);
  EXPECT_EQ(view_.string("name"), "a");
  EXPECT_THAT(view_.integers("sizes"), ElementsAre(1, 2));
  EXPECT_THAT(view_.numbers("betas"), ElementsAre(0.9, 1.0));
  EXPECT_THAT(view_.strings("words"), ElementsAre("x"));
  const auto sets = view_.tables("sets");
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(sets[1].path(), "data.sets[1]");
  EXPECT_EQ(sets[1].string("path"), "q");
}

TEST_F(ConfigViewTest, TellsGivenFromDefaultFromAbsent) {
  EXPECT_TRUE(view_.given("lr"));
  EXPECT_FALSE(view_.given("layers"));
  EXPECT_TRUE(view_.has("layers"));
  EXPECT_FALSE(view_.has("inner"));
  EXPECT_FALSE(view_.given("inner"));
}

TEST_F(ConfigViewTest, AWrongReadIsABugThatNamesTheOption) {
  try {
    (void)view_.integer("lrr");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::internal);
    EXPECT_THAT(error.what(), testing::HasSubstr("option data.lrr"));
  }
  EXPECT_THROW((void)view_.boolean("layers"), Error);
  EXPECT_THROW((void)view_.integers("betas"), Error);
  EXPECT_THROW((void)view_.table("inner"), Error);
}

TEST_F(ConfigViewTest, FailPointsAtTheValue) {
  const auto message = [&](std::string_view key) -> std::string {
    try {
      view_.fail(key, "does not fit");
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message("lr"), "recipe.toml:2:1: data.lr: does not fit");
  EXPECT_EQ(message("layers"), "recipe.toml:1:1: data.layers: does not fit");
  EXPECT_EQ(message(""), "recipe.toml:1:1: data: does not fit");
}

}  // namespace
}  // namespace espalier
