#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "unit/config_core/make_config.hpp"

namespace espalier {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kInf = std::numeric_limits<double>::infinity();

// One option `x`, given as `data` at line 3, column 5.
std::vector<std::string> check_x(const OptionSpec& spec, ConfigValue::Data data) {
  ConfigTable checked = table({{"x", at(3, 5, std::move(data))}});
  return problems(checked, std::span(&spec, 1));
}

const OptionSpec kBoolean = {"x", OptionType::boolean, "true", "flag"};
const OptionSpec kInteger = {"x", OptionType::integer, "1", "count", 1, 4096};
const OptionSpec kNumber = {"x", OptionType::number, "0.5", "rate", 0, 1};
const OptionSpec kString = {"x", OptionType::string, "\"auto\"", "way", -kInf, kInf, "auto|ring|tree"};

TEST(CheckOptions, UnknownKeyNamesTheNearestOne) {
  const std::array<OptionSpec, 2> specs = {OptionSpec{"gradient_clipping", OptionType::number, "1.0", "norm"},
                                           OptionSpec{"lr", OptionType::number, "1", "rate"}};
  ConfigTable checked = table({{"gradient_clipp1ng", at(12, 3, 1.0)}});
  EXPECT_THAT(
      problems(checked, specs),
      ElementsAre("recipe.toml:12:3: optimizer.gradient_clipp1ng: unknown key; did you mean \"gradient_clipping\"?"));
}

TEST(CheckOptions, UnknownKeyFarFromAllListsWhatIsKnown) {
  const std::array<OptionSpec, 2> specs = {OptionSpec{"beta", OptionType::number, "1", ""},
                                           OptionSpec{"lr", OptionType::number, "1", ""}};
  const std::array<std::string_view, 1> reserved = {"plugin"};
  ConfigTable checked = table({{"momentum_decay", at(2, 1, 1.0)}});
  EXPECT_THAT(
      problems(checked, specs, reserved),
      ElementsAre("recipe.toml:2:1: optimizer.momentum_decay: unknown key; known here: \"plugin\", \"beta\", \"lr\""));
}

TEST(CheckOptions, ReservedKeysAreLeftAloneButSuggested) {
  const std::array<std::string_view, 1> reserved = {"plugin"};
  ConfigTable checked = table({{"plugin", at(1, 1, integer(3))}, {"plugn", at(2, 1, integer(3))}});
  EXPECT_THAT(problems(checked, {}, reserved),
              ElementsAre("recipe.toml:2:1: optimizer.plugn: unknown key; did you mean \"plugin\"?"));
}

TEST(CheckOptions, IntegerRefusesWholeFloat) {
  EXPECT_THAT(check_x(kInteger, 9.0),
              ElementsAre("recipe.toml:3:5: optimizer.x: expected integer from 1 to 4096, found float 9.0; write 9"));
  EXPECT_THAT(check_x(kInteger, 9.5),
              ElementsAre("recipe.toml:3:5: optimizer.x: expected integer from 1 to 4096, found float 9.5"));
}

TEST(CheckOptions, IntegerRefusesString) {
  EXPECT_THAT(check_x(kInteger, text("4")),
              ElementsAre("recipe.toml:3:5: optimizer.x: expected integer from 1 to 4096, found string \"4\""));
}

TEST(CheckOptions, IntegerRangeIsInclusive) {
  EXPECT_THAT(check_x(kInteger, integer(1)), IsEmpty());
  EXPECT_THAT(check_x(kInteger, integer(4096)), IsEmpty());
  EXPECT_THAT(check_x(kInteger, integer(-2)),
              ElementsAre("recipe.toml:3:5: optimizer.x: expected integer from 1 to 4096, found integer -2"));
  EXPECT_EQ(check_x(kInteger, integer(4097)).size(), 1U);
  const OptionSpec negative = {"x", OptionType::integer, "-1", "", -4, -1};
  EXPECT_THAT(check_x(negative, integer(-4)), IsEmpty());
  EXPECT_EQ(check_x(negative, integer(0)).size(), 1U);
  EXPECT_EQ(check_x(negative, integer(-5)).size(), 1U);
}

TEST(CheckOptions, NumberTakesIntegerAndRefusesWhatIsNotFinite) {
  EXPECT_THAT(check_x(kNumber, integer(1)), IsEmpty());
  EXPECT_THAT(check_x(kNumber, 1e-4), IsEmpty());
  EXPECT_THAT(check_x(kNumber, 1.5),
              ElementsAre("recipe.toml:3:5: optimizer.x: expected number from 0 to 1, found float 1.5"));
  const OptionSpec open = {"x", OptionType::number, "0", ""};
  EXPECT_THAT(check_x(open, std::nan("")),
              ElementsAre("recipe.toml:3:5: optimizer.x: expected number, found float nan, which is not finite"));
  EXPECT_THAT(check_x(open, -kInf),
              ElementsAre("recipe.toml:3:5: optimizer.x: expected number, found float -inf, which is not finite"));
  EXPECT_EQ(check_x(open, true).size(), 1U);
}

TEST(CheckOptions, BooleanIsNoInteger) {
  EXPECT_THAT(check_x(kBoolean, false), IsEmpty());
  EXPECT_THAT(check_x(kBoolean, integer(1)),
              ElementsAre("recipe.toml:3:5: optimizer.x: expected boolean, found integer 1; write true or false"));
}

TEST(CheckOptions, ChoicesNameTheNearest) {
  EXPECT_THAT(check_x(kString, text("tree")), IsEmpty());
  EXPECT_THAT(
      check_x(kString, text("trie")),
      ElementsAre("recipe.toml:3:5: optimizer.x: expected one of \"auto\", \"ring\", \"tree\", found string \"trie\"; "
                  "did you mean \"tree\"?"));
  EXPECT_THAT(
      check_x(kString, integer(3)),
      ElementsAre("recipe.toml:3:5: optimizer.x: expected one of \"auto\", \"ring\", \"tree\", found integer 3"));
}

TEST(CheckOptions, ArraysAreCheckedElementByElement) {
  const OptionSpec betas = {"x", OptionType::numbers, "[0.9, 0.95]", "", 0, 1};
  EXPECT_THAT(check_x(betas, array({integer(1), 0.95})), IsEmpty());
  EXPECT_THAT(check_x(betas, array({0.9, 1.95, text("a")})),
              ElementsAre("recipe.toml:3:5: optimizer.x[1]: expected number from 0 to 1, found float 1.95",
                          "recipe.toml:3:5: optimizer.x[2]: expected number from 0 to 1, found string \"a\""));
  EXPECT_THAT(check_x(betas, 0.9),
              ElementsAre("recipe.toml:3:5: optimizer.x: expected array of numbers, found float 0.9"));
  const OptionSpec sizes = {"x", OptionType::integers, "[]", "", 1};
  EXPECT_THAT(check_x(sizes, array({integer(1), integer(0)})),
              ElementsAre("recipe.toml:3:5: optimizer.x[1]: expected integer of at least 1, found integer 0"));
  const OptionSpec names = {"x", OptionType::strings, "[]", "", -kInf, kInf, "a|b"};
  EXPECT_EQ(check_x(names, array({text("a"), text("c")})).size(), 1U);
}

TEST(CheckOptions, AnElementPointsAtItself) {
  const OptionSpec sizes = {"x", OptionType::integers, "[]", "", 1};
  EXPECT_THAT(check_x(sizes, ConfigValue::Array{at(4, 7, integer(0))}),
              ElementsAre("recipe.toml:4:7: optimizer.x[0]: expected integer of at least 1, found integer 0"));
}

TEST(CheckOptions, NestedTablesHaveTheirOwnOptions) {
  static constexpr std::array<OptionSpec, 2> kInner = {OptionSpec{"path", OptionType::string, nullptr, "of the file"},
                                                       OptionSpec{"weight", OptionType::number, "1", "share"}};
  const OptionSpec one = {"x", OptionType::table, "", "", -kInf, kInf, nullptr, kInner.data(), kInner.size()};
  EXPECT_THAT(check_x(one, nested({{"path", at(4, 1, text("a"))}, {"wieght", at(5, 1, 2.0)}}, 3)),
              ElementsAre("recipe.toml:5:1: optimizer.x.wieght: unknown key; did you mean \"weight\"?"));
  EXPECT_THAT(check_x(one, integer(1)), ElementsAre("recipe.toml:3:5: optimizer.x: expected table, found integer 1"));
  const OptionSpec many = {"x", OptionType::tables, nullptr, "", -kInf, kInf, nullptr, kInner.data(), kInner.size()};
  EXPECT_THAT(check_x(many, array({nested({{"path", at(7, 1, text("a"))}}, 6), nested({}, 9)})),
              ElementsAre("recipe.toml:9:1: optimizer.x[1].path: missing; expected string: of the file"));
}

TEST(CheckOptions, MissingRequiredPointsAtTheTable) {
  const OptionSpec required = {"size", OptionType::integer, nullptr, "ranks in the group", 1};
  ConfigTable checked = table({}, 8);
  EXPECT_THAT(
      problems(checked, std::span(&required, 1)),
      ElementsAre("recipe.toml:8:1: optimizer.size: missing; expected integer of at least 1: ranks in the group"));
}

TEST(CheckOptions, ReportsEverythingAtOnce) {
  const std::array<OptionSpec, 3> specs = {OptionSpec{"a", OptionType::integer, "1", ""},
                                           OptionSpec{"b", OptionType::boolean, "true", ""},
                                           OptionSpec{"c", OptionType::string, nullptr, ""}};
  ConfigTable checked = table({{"a", at(2, 1, 1.0)}, {"b", at(3, 1, integer(0))}, {"d", at(4, 1, integer(0))}});
  EXPECT_EQ(problems(checked, specs).size(), 4U);
}

}  // namespace
}  // namespace espalier
