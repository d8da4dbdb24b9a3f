#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "commands/cli.hpp"
#include "espalier/error.hpp"

namespace espalier::app {
namespace {

using ::testing::HasSubstr;

Args seen;

int keep(const Args& args) {
  seen = args;
  return 75;
}

constexpr ArgSpec kFrameArgs[] = {
    kRecipeArg,
    kSetArg,
    {"--world", ArgType::integer, "ranks", false, "1"},
    {"--rate", ArgType::number, "a rate", false},
    {"--quiet", ArgType::flag, "say less"},
};
const Command kCheck{"config check", "checks a recipe", "Example:\n  trainer config check a.toml", kFrameArgs, keep};
const Command kTrain{"train", "trains", "lesson of train", kFrameArgs, keep};
const Command* const kAll[] = {&kTrain, &kCheck};

int run(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  return run_cli(arguments, kAll, out);
}

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    run(arguments);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Frame, ArgumentsReachTheCommandAndItsExitCodeComesBack) {
  EXPECT_EQ(run({"config", "check", "a.toml", "--set", "train.lr=1e-4", "--set", "x.y=[1, 2]", "--world", "384",
                 "--rate", "-0.5", "--quiet"}),
            75);
  EXPECT_EQ(seen.string("RECIPE"), "a.toml");
  EXPECT_EQ(seen.strings("--set"), (std::vector<std::string>{"train.lr=1e-4", "x.y=[1, 2]"}));
  EXPECT_EQ(seen.integer("--world"), 384);
  EXPECT_EQ(seen.number("--rate"), -0.5);
  EXPECT_TRUE(seen.flag("--quiet"));
}

TEST(Frame, DefaultsAreFilledIn) {
  run({"train", "a.toml"});
  EXPECT_EQ(seen.integer("--world"), 1);
  EXPECT_FALSE(seen.has("--rate"));
  EXPECT_FALSE(seen.flag("--quiet"));
  EXPECT_TRUE(seen.strings("--set").empty());
}

TEST(Frame, WrongNameIsRefusedWithTheNearest) {
  EXPECT_EQ(refusal({"train", "a.toml", "--wrold", "2"}),
            "command line: --wrold: unknown option of \"train\"; did you mean \"--world\"? (trainer train --help)\n"
            "command line: \"2\": unexpected argument of \"train\" (trainer train --help)");
  EXPECT_THAT(refusal({"tran", "a.toml"}), HasSubstr("command line: tran: unknown command; did you mean \"train\"?"));
  EXPECT_THAT(refusal({"config", "chek"}), HasSubstr("unknown command of \"config\"; did you mean \"check\"?"));
}

TEST(Frame, EverythingMissingIsSaidAtOnce) {
  const std::string text = refusal({"train", "--wrold=2"});
  EXPECT_THAT(text, HasSubstr("--wrold"));
  EXPECT_THAT(text, HasSubstr("RECIPE: missing"));
  EXPECT_THAT(refusal({}), HasSubstr("name a command; known: train, config"));
  EXPECT_THAT(refusal({"config"}), HasSubstr("name a command of \"config\"; known: check"));
}

TEST(Frame, NumbersAreCheckedBeforeTheCommandRuns) {
  seen = Args();
  EXPECT_EQ(refusal({"train", "a.toml", "--world", "two"}),
            "command line: --world: expected an integer, found \"two\"");
  EXPECT_EQ(refusal({"train", "a.toml", "--world", "2.0"}),
            "command line: --world: expected an integer, found \"2.0\"");
  EXPECT_EQ(refusal({"train", "a.toml", "--rate", "nan"}),
            "command line: --rate: expected a finite number, found \"nan\"");
  EXPECT_TRUE(seen.declared.empty());
  EXPECT_THAT(refusal({"train", "a.toml", "--world"}), HasSubstr("--world"));
}

TEST(Frame, HelpTeachesAtEachLevel) {
  std::ostringstream root, group, command, version;
  EXPECT_EQ(run_cli({"--help"}, kAll, root), 0);
  EXPECT_THAT(root.str(), HasSubstr("trainer doctor"));
  EXPECT_THAT(root.str(), HasSubstr("trains"));
  EXPECT_EQ(run_cli({"config", "--help"}, kAll, group), 0);
  EXPECT_THAT(group.str(), HasSubstr("checks a recipe"));
  EXPECT_THAT(group.str(), HasSubstr("Usage: trainer config"));
  EXPECT_EQ(run_cli({"train", "--help"}, kAll, command), 0);
  EXPECT_THAT(command.str(), HasSubstr("lesson of train"));
  EXPECT_THAT(command.str(), HasSubstr("KEY=VALUE"));
  EXPECT_EQ(run_cli({"--version"}, kAll, version), 0);
  EXPECT_EQ(version.str().rfind("espalier 0.", 0), 0u);
}

}  // namespace
}  // namespace espalier::app
