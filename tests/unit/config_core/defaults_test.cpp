#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/config_core/make_config.hpp"

namespace espalier {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The default that check_options fills in, as TOML text.
std::string filled(OptionType type, const char* fallback) {
  const OptionSpec spec = {"x", type, fallback, ""};
  ConfigTable checked = table({});
  EXPECT_THAT(problems(checked, std::span(&spec, 1)), IsEmpty());
  const ConfigValue* const value = checked.find("x");
  if (value == nullptr) return "absent";
  EXPECT_EQ(value->source.origin, "default");
  EXPECT_EQ(value->source.file, "");
  return value->to_text();
}

TEST(Defaults, AreReadFromTomlText) {
  EXPECT_EQ(filled(OptionType::boolean, "true"), "true");
  EXPECT_EQ(filled(OptionType::boolean, "false"), "false");
  EXPECT_EQ(filled(OptionType::integer, "250_880"), "250880");
  EXPECT_EQ(filled(OptionType::integer, "-1"), "-1");
  EXPECT_EQ(filled(OptionType::integer, "+7"), "7");
  EXPECT_EQ(filled(OptionType::number, "1e-8"), "1e-08");
  EXPECT_EQ(filled(OptionType::number, "0.95"), "0.95");
  EXPECT_EQ(filled(OptionType::number, "1"), "1");
  EXPECT_EQ(filled(OptionType::string, "\"auto\""), "\"auto\"");
  EXPECT_EQ(filled(OptionType::string, "'a\\b'"), "\"a\\\\b\"");
  EXPECT_EQ(filled(OptionType::string, "\"a\\\"b\\n\""), "\"a\\\"b\\n\"");
  EXPECT_EQ(filled(OptionType::numbers, "[0.9, 0.95]"), "[0.9, 0.95]");
  EXPECT_EQ(filled(OptionType::integers, "[ 1, 2, ]"), "[1, 2]");
  EXPECT_EQ(filled(OptionType::strings, "[\"a, b\", \"]\"]"), "[\"a, b\", \"]\"]");
  EXPECT_EQ(filled(OptionType::strings, "[]"), "[]");
  EXPECT_EQ(filled(OptionType::tables, "[]"), "[]");
}

TEST(Defaults, EmptyTextMeansOptionalWithoutDefault) { EXPECT_EQ(filled(OptionType::integer, ""), "absent"); }

TEST(Defaults, AnEmptyTableGetsTheDefaultsOfItsOwnOptions) {
  static constexpr OptionSpec kInner = {"depth", OptionType::integer, "4", ""};
  OptionSpec spec = {"x", OptionType::table, "{}", ""};
  spec.nested = &kInner;
  spec.nested_count = 1;
  ConfigTable checked = table({});
  EXPECT_THAT(problems(checked, std::span(&spec, 1)), IsEmpty());
  const ConfigView view(checked, "optimizer");
  EXPECT_EQ(view.table("x").integer("depth"), 4);
  EXPECT_FALSE(view.table("x").given("depth"));
}

TEST(Defaults, APresentKeyNeverFallsBack) {
  const OptionSpec spec = {"x", OptionType::integer, "5", ""};
  ConfigTable wrong = table({{"x", at(2, 1, 9.0)}});
  EXPECT_EQ(problems(wrong, std::span(&spec, 1)).size(), 1U);
  EXPECT_EQ(wrong.find("x")->to_text(), "9.0");
}

TEST(Defaults, ABadDefaultIsABugOfItsAuthor) {
  for (const char* const fallback : {"yes", "[1, 2", "\"open", "1 2", "1.2.3", "{ a = 1 }", "0x10", "_", "+"}) {
    const OptionSpec spec = {"x", OptionType::integer, fallback, ""};
    ConfigTable checked = table({});
    std::vector<ConfigProblem> found;
    try {
      check_options(checked, "optimizer", std::span(&spec, 1), {}, found);
      FAIL() << "accepted " << fallback;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::internal);
      EXPECT_THAT(error.what(), HasSubstr("option optimizer.x declares the default `" + std::string(fallback) + "`"));
    }
  }
}

TEST(Defaults, ADefaultOutsideItsOwnRangeIsABug) {
  const OptionSpec spec = {"x", OptionType::integer, "0", "", 1};
  ConfigTable checked = table({});
  std::vector<ConfigProblem> found;
  EXPECT_THROW(check_options(checked, "optimizer", std::span(&spec, 1), {}, found), Error);
}

}  // namespace
}  // namespace espalier
