// Ranks that are started with different recipes end at once, all of them, and say what differs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

using testing::HasSubstr;

/// Three ranks, the last of which gets more arguments.
TrainerJob job_of(const std::string& name, const std::vector<std::string>& more) {
  TrainerJob job(name);
  job.ranks(3).set("train.train_iters", "2").set("train.global_batch_size", "6");
  std::vector<std::string> last = job.trainer();
  last.insert(last.end(), more.begin(), more.end());
  job.rank_commands({{}, {}, last});
  return job;
}

/// Ends all ranks with this code, having said one line.
std::string refusal(TrainerJob& job, int code) {
  const std::string text = job.expect(code, 20).output;
  EXPECT_EQ(text.find("trainer: "), text.rfind("trainer: ")) << "said more than once:\n" << text;
  EXPECT_FALSE(std::filesystem::exists(job.run_dir()));
  return text;
}

TEST(Recipes, AnotherValueIsNamed) {
  TrainerJob job = job_of("weight_decay", {"--set", "optimizer.weight_decay=0.25"});
  job.set("optimizer.weight_decay", "0.125");
  EXPECT_THAT(refusal(job, 2),
              testing::ContainsRegex("optimizer.weight_decay is 0.125 \\(.*recipe.toml:[0-9]+\\) on rank 0 and 0.25 "
                                     "\\(--set\\) on rank 2"));
}

TEST(Recipes, AnOptionalKeyThatOneLacks) {
  TrainerJob job = job_of("lacking", {"--set", "train.lr_warmup_samples=4", "--set", "model.expect_params=33824"});
  job.set("train.lr_warmup_samples", "4");
  EXPECT_THAT(refusal(job, 2), HasSubstr("model.expect_params is not set on rank 0 and 33824 (--set) on rank 2"));
}

// The names of the recipes make other run folders, but that is not what the user has to look at.
TEST(Recipes, AnotherFile) {
  TrainerJob job("files");
  job.ranks(2).set("train.train_iters", "2");
  const std::filesystem::path other = job.folder() / "other.toml";
  std::vector<std::string> last = job.trainer();
  last.back() = other.string();
  job.rank_commands({{}, last});
  // The recipe itself is written when the job starts.
  std::ofstream(other) << "include = \"recipe.toml\"\n[train]\nseed = 7\n";
  EXPECT_THAT(refusal(job, 2),
              HasSubstr("train.seed is 1234 (default) on rank 0 and 7 (" + other.string() + ":3) on rank 1"));
}

TEST(Recipes, WhatEachRankMayChoose) {
  job_of("own_choice", {"--set", "train.threads=2", "--set", "log.level=warning"}).expect(0);
}

TEST(Recipes, AFileThatOneRankLacks) {
  for (const std::string& name : {std::string("missing.toml"), std::string(300, 'n')}) {
    TrainerJob job("lacks_file");
    job.ranks(2).set("train.train_iters", "2");
    const std::filesystem::path other = job.folder() / "other.toml";
    std::ofstream(other) << "include = [\"recipe.toml\", \"" << name << "\"]\n";
    std::vector<std::string> last = job.trainer();
    last.back() = other.string();
    job.rank_commands({{}, last});
    EXPECT_THAT(refusal(job, 2),
                testing::AllOf(HasSubstr("rank 1: " + other.string() + ":1:1: include: "), HasSubstr(name)));

    last.back() = (job.folder() / name).string();
    job.rank_commands({{}, last});
    EXPECT_THAT(refusal(job, 4), testing::AllOf(HasSubstr("rank 1: "), HasSubstr("cannot read the recipe")));
  }
}

}  // namespace
}  // namespace espalier::testing_support
