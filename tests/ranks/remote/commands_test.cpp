// The commands that use a model, on the remote device: they print what they print on the reference backend.
#include "remote_jobs.hpp"

namespace espalier::testing_support {
namespace {

namespace fs = std::filesystem;

class RemoteCommands : public testing::Test {
 protected:
  RemoteCommands() : job_(remote_job("remote_commands", [](TrainerJob& job) { job.set("train.train_iters", "3"); })) {
    job_.expect(0);
  }

  /// @param ranks  more than one: under mpiexec.
  std::string output(std::vector<std::string> arguments, const std::string& backend, int ranks) {
    std::vector<std::string> command;
    if (ranks > 1) command = {ESPALIER_MPIEXEC, "-n", std::to_string(ranks)};
    command.emplace_back(TRAINER_EXE);
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.insert(command.end(), {"--set", "backend.plugin=\"" + backend + "\""});
    const Ended ended = run_command(command, {}, job_.folder() / "command.txt", 60);
    EXPECT_EQ(ended.code, 0) << ended.output;
    return ended.output.substr(0, ended.output.find("generate: "));  // what follows is how long it took
  }

  void expect_same(const std::vector<std::string>& arguments, int ranks = 1) {
    const std::string expected = output(arguments, "reference", ranks);
    EXPECT_GT(expected.size(), 20u);
    EXPECT_EQ(output(arguments, "remote", ranks), expected) << arguments.front() << " on " << ranks << " ranks";
  }

  std::string checkpoint() const { return job_.checkpoint(3).string(); }

  TrainerJob job_;
};

TEST_F(RemoteCommands, Generate) {
  const std::vector<std::string> generate = {"generate", "--checkpoint", checkpoint(), "--prompt", "ab",
                                             "--prompt", "hello",        "--tokens",   "6"};
  expect_same(generate);
  for (const std::string strategy : {"tensor", "pipeline"}) {
    std::vector<std::string> split = generate;
    for (const std::string& key :
         {"parallel." + strategy + ".size=2", "parallel." + strategy + ".plugin=\"parallel_" + strategy + "\"",
          std::string("parallel.data.plugin=\"parallel_zero\"")}) {
      split.insert(split.end(), {"--set", key});
    }
    expect_same(split, 2);
  }
}

TEST_F(RemoteCommands, Eval) {
  const fs::path questions = job_.folder() / "questions.jsonl";
  std::ofstream(questions) << R"({"context": "a", "choices": ["b", "cd", "e"], "gold": 1})"
                           << "\n"
                           << R"({"context": "the", "choices": ["x", "yz"], "gold": 0})"
                           << "\n";
  const fs::path text = job_.folder() / "text.txt";
  std::ofstream(text) << "some text to evaluate on, of a few sequences\n";
  expect_same({"eval", "--checkpoint", checkpoint(), "--data", text.string()});
  expect_same({"eval", "--checkpoint", checkpoint(), "--choices", questions.string()});
}

/// Logits, loss and gradients, written down and compared with PyTorch's: to the digit.
TEST_F(RemoteCommands, Numerics) {
  const std::string model = ESPALIER_FIXTURES_DIR "/model/tiny_b";
  const auto table = [&](const std::string& backend, int ranks) {
    const std::string text =
        output({"numerics", "--model", model + "/hf", "--batch", model + "/fwd_bwd.safetensors", "--recipe",
                job_.recipe().string(), "--set", "parallel.data.plugin=parallel_zero", "--out",
                (job_.folder() / "out.safetensors").string(), "--compare", model + "/fwd_bwd.safetensors"},
               backend, ranks);
    const auto begin = text.find("\ngrad.");
    return begin == std::string::npos ? text : text.substr(begin);
  };
  for (const int ranks : {1, 2}) {
    const std::string expected = table("reference", ranks);
    EXPECT_GT(count_of(expected, "\ngrad.h."), 10) << expected;
    EXPECT_EQ(table("remote", ranks), expected) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace espalier::testing_support
