#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/config_core/make_config.hpp"

namespace espalier {
namespace {

using namespace testing_support;

TEST(ConfigText, ValuesReadBackAsToml) {
  EXPECT_EQ(at(1, 1, 1.0).to_text(), "1.0");
  EXPECT_EQ(at(1, 1, 0.1).to_text(), "0.1");
  EXPECT_EQ(at(1, 1, 1e300).to_text(), "1e+300");
  EXPECT_EQ(at(1, 1, integer(-7)).to_text(), "-7");
  EXPECT_EQ(at(1, 1, text(std::string("a\x01\x7f", 3))).to_text(), "\"a\\u0001\\u007F\"");
  EXPECT_EQ(at(1, 1, text("π")).to_text(), "\"π\"");
  EXPECT_EQ(at(1, 1, nested({{"a b", at(1, 1, integer(1))}, {"c", at(1, 1, array({}))}}, 1)).to_text(),
            "{ \"a b\" = 1, c = [] }");
}

TEST(ConfigText, TypeNames) {
  EXPECT_EQ(at(1, 1, true).type_name(), "boolean");
  EXPECT_EQ(at(1, 1, integer(1)).type_name(), "integer");
  EXPECT_EQ(at(1, 1, 1.0).type_name(), "float");
  EXPECT_EQ(at(1, 1, text("")).type_name(), "string");
  EXPECT_EQ(at(1, 1, array({})).type_name(), "array");
  EXPECT_EQ(at(1, 1, nested({}, 1)).type_name(), "table");
}

TEST(ConfigText, ProblemsNameWhatIsKnownOfTheirPlace) {
  EXPECT_EQ(to_string({{"a.toml", 12, 3, "recipe"}, "optimizer.betas", "expected"}),
            "a.toml:12:3: optimizer.betas: expected");
  EXPECT_EQ(to_string({{"a.toml", 0, 0, "recipe"}, "optimizer", "missing"}), "a.toml: optimizer: missing");
  EXPECT_EQ(to_string({{"", 0, 0, "--set"}, "optimizer.lrr", "unknown key"}), "--set optimizer.lrr: unknown key");
  EXPECT_EQ(to_string({{}, "optimizer", "missing"}), "optimizer: missing");
}

TEST(ConfigText, AllProblemsAreThrownInTheOrderOfTheFile) {
  const std::vector<ConfigProblem> problems = {{{"", 0, 0, "--set"}, "d", "fourth"},
                                               {{"a.toml", 9, 1, "recipe"}, "b", "second"},
                                               {{"b.toml", 1, 1, "include"}, "c", "third"},
                                               {{"a.toml", 2, 5, "recipe"}, "a", "first"},
                                               {{"a.toml", 2, 3, "recipe"}, "z", "before the first"}};
  try {
    throw_if_any(problems);
    FAIL() << "nothing thrown";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "a.toml:2:3: z: before the first\na.toml:2:5: a: first\na.toml:9:1: b: second\nb.toml:1:1: c: third\n"
                 "--set d: fourth");
    EXPECT_EQ(error.exit_code(), ExitCode::usage);
  }
}

TEST(ConfigText, NoProblemThrowsNothing) { EXPECT_NO_THROW(throw_if_any({})); }

}  // namespace
}  // namespace espalier
