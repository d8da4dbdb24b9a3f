#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <regex>
#include <set>
#include <vector>

#include "cli/process.hpp"
#include "unit/text/files.hpp"

namespace espalier::cli_test {
namespace {

using app::text_test::Folder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kTrainer = TRAINER_EXE;

/// A model of a few thousand parameters, trained for some steps on text of its own; made once for all tests here.
class SavedModelCommands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new Folder;
    std::string lines;
    for (int k = 0; k < 40; ++k) lines += "{\"text\":\"number " + std::to_string(k * k) + " é, and again\"}\n";
    folder_->write("train.jsonl", lines);
    folder_->write("held_out.jsonl", "{\"text\":\"number 7 é, and once more\"}\n{\"text\":\"and again number 12\"}\n");
    std::string text;
    for (const char* part : {"train", "held_out"}) {
      text += run(kTrainer + " preprocess --input " + path(part) + ".jsonl --output " + path(part)).text;
    }
    folder_->write("recipe.toml", R"(
[run]
dir = "run"
[model]
layers = 2
hidden = 32
heads = 2
vocab_size = 320
seq_length = 16
[train]
train_iters = 30
global_batch_size = 4
micro_batch_size = 2
lr = 1e-2
[optimizer]
plugin = "optim_fp32"
[eval]
at_end = true
[data]
plugin = "data_indexed"
path = "train"
valid = [{ name = "held", path = "held_out" }]
)");
    training_ = new Outcome(here(kTrainer + " train recipe.toml"));
    ASSERT_EQ(training_->code, 0) << text << training_->text;
  }
  static void TearDownTestSuite() {
    delete training_;
    delete folder_;
  }

  static std::string path(const std::string& name) { return quoted(folder_->file(name)); }
  static Outcome here(const std::string& command) { return run("cd " + path("") + " && " + command); }
  static Outcome generate(const std::string& more) {
    return here(kTrainer + " generate --checkpoint run " + more + " 2>/dev/null");
  }

  inline static Folder* folder_ = nullptr;
  inline static Outcome* training_ = nullptr;
};

std::string bits_in(const std::string& text) {
  std::smatch found;
  return std::regex_search(text, found, std::regex("validation: ([0-9.]+) bits per byte")) ? found[1].str()
                                                                                           : "none in: " + text;
}

TEST_F(SavedModelCommands, TheSameSeedGivesTheSameText) {
  const Outcome first = generate("--prompt number --tokens 40 --seed 3");
  EXPECT_EQ(first.code, 0);
  EXPECT_THAT(first.text, StartsWith("number"));
  EXPECT_GT(first.text.size(), 10u);
  EXPECT_EQ(generate("--prompt number --tokens 40 --seed 3").text, first.text);
  EXPECT_NE(generate("--prompt number --tokens 40 --seed 4").text, first.text);
  // What runs beside a request changes nothing: the second of two prompts by itself in a file.
  folder_->write("prompt.txt", "number");
  EXPECT_THAT(generate("--prompt-file prompt.txt --prompt number --tokens 40 --seed 3").text,
              StartsWith(first.text.substr(0, first.text.size() - 1)));
}

// Prompts of different lengths that end at different places, so that a batch is mixed anew all the time.
TEST_F(SavedModelCommands, ABatchOfPromptsGivesTheTextsOfOneByOne) {
  const std::string prompts =
      "--prompt number --prompt and --prompt 'number 12 é, and again' --prompt '' --prompt n --prompt 'é, a' --prompt "
      "7 "
      "--tokens 30 --seed 5 ";
  const Outcome single = generate(prompts + "--batch 1");
  EXPECT_EQ(single.code, 0);
  EXPECT_THAT(single.text, HasSubstr("\n\nnumber 12 é, and again"));
  for (const char* batch :
       {"--batch 2", "--batch 3", "--batch 7", "--batch 100", "--batch 0", "--batch 3 --no-cache"}) {
    EXPECT_EQ(generate(prompts + batch).text, single.text) << batch;
  }
  const std::string ends =
      here(kTrainer + " generate --checkpoint run --batch 7 --no-echo " + prompts + " 2>&1 >/dev/null").text;
  int drawn = 210;
  std::sscanf(ends.c_str(), "generate: %d tokens", &drawn);
  EXPECT_LT(drawn, 210) << "no request ended before the others: " << ends;
}

TEST_F(SavedModelCommands, GreedyNeedsNoSeedAndAgreesWithTopOne) {
  const std::string greedy = generate("--prompt and --tokens 24 --greedy --ignore-end --no-echo").text;
  EXPECT_EQ(generate("--prompt and --tokens 24 --greedy --ignore-end --no-echo --seed 9").text, greedy);
  EXPECT_EQ(generate("--prompt and --tokens 24 --top-k 1 --ignore-end --no-echo --seed 5").text, greedy);
  EXPECT_EQ(generate("--prompt and --tokens 24 --temperature 0 --ignore-end --no-echo").text, greedy);
}

// Beyond the training length too: the model's samples have 16 tokens.
TEST_F(SavedModelCommands, TheCacheChangesNoToken) {
  const std::string arguments = "--prompt and --prompt 'number 1' --tokens 60 --greedy --ignore-end";
  const Outcome cached = generate(arguments), whole = generate(arguments + " --no-cache");
  EXPECT_EQ(whole.code, 0);
  EXPECT_GT(cached.text.size(), 100u);
  EXPECT_EQ(whole.text, cached.text);
}

TEST_F(SavedModelCommands, ThePenaltyKeepsTextFromRepeating) {
  const auto different = [](const std::string& text) { return std::set<char>(text.begin(), text.end()).size(); };
  const std::string arguments = "--prompt and --tokens 60 --greedy --ignore-end --no-echo";
  EXPECT_GT(different(generate(arguments + " --repetition-penalty 5").text), 2 * different(generate(arguments).text));
}

// log p(bc | a) = log p(b | a) + log p(c | ab), and so for any cut: masks and positions of continuations.
TEST_F(SavedModelCommands, LikelihoodsOfContinuationsAddUp) {
  folder_->write("q.jsonl",
                 "{\"context\":\"num\",\"choices\":[\"ber 7 é, and\",\"ber\",\"b\"],\"gold\":0}\n"
                 "{\"context\":\"number\",\"choices\":[\" 7 é, and\"],\"gold\":0}\n"
                 "{\"context\":\"numb\",\"choices\":[\"er\",\"er 7 é, and\"],\"gold\":1}\n");
  const Outcome outcome = here(kTrainer + " eval --checkpoint run --choices q.jsonl --delimiter '' --details q.txt");
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  std::vector<double> v;
  std::ifstream in(folder_->file("q.txt"));
  for (std::string text; in >> text;) v.push_back(std::stod(text.substr(text[0] == '[' ? 1 : 0)));
  ASSERT_EQ(v.size(), 6u);
  EXPECT_NEAR(v[0], v[1] + v[3], 1e-3);
  EXPECT_NEAR(v[1], v[2] + v[4], 1e-3);
  EXPECT_NEAR(v[0], v[2] + v[5], 1e-3);
  EXPECT_LT(v[0], v[1]);
}

TEST_F(SavedModelCommands, EvalAgreesWithTrainingsOwnEvaluation) {
  const std::string bits = bits_in(training_->text);
  const Outcome sets = here(kTrainer + " eval --checkpoint run/checkpoints");
  EXPECT_EQ(sets.code, 0) << sets.text;
  EXPECT_EQ(bits_in(sets.text), bits);
  EXPECT_THAT(sets.text, HasSubstr("held"));
  const Outcome step = here(kTrainer + " eval --checkpoint run/checkpoints/step_30");
  EXPECT_EQ(bits_in(step.text), bits);
}

// Every byte but the first is a target once, the last, short sample included: 45 bytes of text, of which one begins.
TEST_F(SavedModelCommands, EvalOfFilesCountsEveryByte) {
  const Outcome outcome = here(kTrainer + " eval --checkpoint run --data held_out.jsonl --data train.jsonl");
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_TRUE(std::regex_search(outcome.text, std::regex("held_out.jsonl +44 +46 "))) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("all, by bytes"));
}

TEST_F(SavedModelCommands, MistakesAreNamed) {
  const auto refused = [](const std::string& command, int code, const std::string& text) {
    const Outcome outcome = here(kTrainer + " " + command);
    EXPECT_EQ(outcome.code, code) << command << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(text)) << command;
  };
  refused("generate --checkpoint nowhere --prompt x", 4, folder_->file("nowhere") + ": no checkpoint there");
  refused("generate --checkpoint run", 2, "--prompt: give at least one");
  refused("generate --checkpoint run --prompt x --tokens 0", 2, "--tokens: must be at least 1");
  refused("generate --checkpoint run --prompt x --tokens 9223372036854775807", 2,
          "--tokens: must be at most 2147483647");
  refused("generate --checkpoint run --prompt xyz --tokens 2147483647", 2, "positions have 31 bits");
  refused("generate --checkpoint run --prompt x --tokens 2147483640", 6,
          "2147483641 tokens need 1099511624192 bytes, 512 a token");
  refused("generate --checkpoint run --prompt-file /dev/zero", 4, "/dev/zero: goes on behind 1073741824 bytes");
  refused("generate --checkpoint run --prompt x --batch -1", 2, "--batch: must be at least 0");
  refused("generate --checkpoint run --prompt x --top-p 0", 2, "--top-p");
  refused("generate --checkpoint run --prompt \"$(printf '\\377')\"", 2, "is not UTF-8");
  for (const char* penalty : {"0", "1e-300", "1e300", "-2"}) {
    refused(std::string("generate --checkpoint run --prompt x --repetition-penalty ") + penalty, 2,
            "--repetition-penalty: must be from 0.001 to 1000");
  }
  refused("eval --checkpoint run --data none.txt", 4, folder_->file("none.txt"));
  refused("eval --checkpoint run --choices none.jsonl", 4, folder_->file("none.jsonl"));
  refused("eval --checkpoint run --choices q.jsonl --data train.jsonl", 2, "--choices: not together with --data");
  refused("eval --checkpoint run --details x", 2, "--details: is for --choices");
  folder_->write("one.jsonl", "{\"context\":\"a\",\"choices\":[\"b\"],\"gold\":0}\n");
  refused("eval --checkpoint run --choices one.jsonl --details ./one.jsonl", 2, "--details: one.jsonl holds the questions");
  EXPECT_GT(std::filesystem::file_size(folder_->file("one.jsonl")), 0u);
  refused("eval --checkpoint run --choices one.jsonl --details none/x", 4, "none/x: cannot be written: No such file");
  // A full disk is no bug of the program, whoever of it finds out.
  for (const char* command : {"eval --checkpoint run --data train.jsonl", "generate --checkpoint run --prompt a"}) {
    const Outcome outcome = here(kTrainer + " " + command + " >/dev/full");
    EXPECT_EQ(outcome.code, 4) << outcome.text;
    EXPECT_THAT(outcome.text, ::testing::Not(HasSubstr("internal error")));
  }
}

}  // namespace
}  // namespace espalier::cli_test
