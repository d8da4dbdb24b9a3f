// R01: what one rank alone meets, in any phase, ends the whole job within ten seconds, and is told once with its rank.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

void expect_end(TrainerJob& job, int code, const std::string& cause, int ranks = 2) {
  const Ended ended = job.run(30);
  EXPECT_FALSE(ended.timed_out) << ended.output;
  EXPECT_LT(ended.seconds, 10);
  EXPECT_EQ(ended.code, code) << ended.output;
  EXPECT_EQ(count_of(ended.output, cause), 1) << "looking for: " << cause << "\nin: " << ended.output;
  EXPECT_EQ(count_of(ended.output, "rank " + std::to_string(ranks - 1) + ": "), 1) << ended.output;
}

TrainerJob job_with_faults(const std::string& name) {
  TrainerJob job(name);
  job.set("plugins.search_path", "[\"" ESPALIER_PLUGIN_DIR "\", \"" FAULTS_DIR "\"]")
      .set("train.train_iters", "20")
      .ranks(2);
  return job;
}

TEST(OneRank, HasNoRecipe) {
  TrainerJob job("one_recipe");
  job.ranks(2).rank_commands({{}, {TRAINER_EXE, "train", (job.folder() / "gone.toml").string()}});
  expect_end(job, 4, "gone.toml");
}

TEST(OneRank, HasAWrongRecipe) {
  TrainerJob job("one_wrong");
  const auto own = job.folder() / "own.toml";
  std::ofstream(own) << "include = [\"recipe.toml\"]\n[train]\nlearning_rate = 1\n";
  job.ranks(2).rank_commands({{}, {TRAINER_EXE, "train", own.string()}});
  expect_end(job, 2, "train.learning_rate");
}

TEST(OneRank, FindsNoPlugin) {
  TrainerJob job("one_plugin");
  job.ranks(2).set("data.plugin", "\"faults\"");
  job.rank_commands({{"-env", "ESPALIER_PLUGIN_PATH", FAULTS_DIR, TRAINER_EXE, "train", job.recipe().string()}, {}});
  expect_end(job, 3, "plugin \"faults\"");
}

TEST(OneRank, CannotMakeItsBackend) {
  TrainerJob job = job_with_faults("one_create");
  job.set("backend.plugin", "\"faults\"")
      .set("backend.fault", "\"create\"")
      .set("backend.every_step", "true")
      .set("backend.rank", "1");
  expect_end(job, 3, "thrown on purpose by a constructor");
}

TEST(OneRank, CannotOpenItsData) {
  TrainerJob job = job_with_faults("one_open");
  job.set("data.plugin", "\"faults\"").set("data.fault", "\"open\"").set("data.rank", "1");
  expect_end(job, 4, "/data/set.idx: cannot open on purpose");
}

TEST(OneRank, CannotReadASampleOfStepThree) {
  TrainerJob job = job_with_faults("one_sample");
  job.set("data.plugin", "\"faults\"").set("data.fault", "\"train\"").set("data.index", "16").set("data.rank", "1");
  expect_end(job, 4, "/data/set.bin: cannot read on purpose");
  EXPECT_EQ(job.steps().size(), 2u);
}

TEST(OneRank, FailsInAKernelOfStepThree) {
  TrainerJob job = job_with_faults("one_kernel");
  job.set("backend.plugin", "\"faults\"")
      .set("backend.fault", "\"throw\"")
      .set("backend.steps", "[3]")
      .set("backend.rank", "1");
  expect_end(job, 6, "thrown on purpose by a kernel");
  EXPECT_EQ(job.steps().size(), 2u);
}

TEST(OneRank, FailsInAnEvaluation) {
  TrainerJob job = job_with_faults("one_evaluation");
  job.set("data.plugin", "\"faults\"").set("data.fault", "\"valid\"").set("data.rank", "1").set("eval.interval", "4");
  expect_end(job, 4, "/data/set.bin: cannot read on purpose");
  EXPECT_EQ(job.steps().size(), 4u);
}

// Its files may not grow from now on: a full disk that only one rank sees. The checkpoint before stays, and the run
// goes on from it.
TEST(OneRank, CannotWriteItsPartOfACheckpoint) {
  for (const char* async : {"true", "false"}) {
    TrainerJob job("one_save");
    job.ranks(2).set("train.train_iters", "5000").set("checkpoint.async", async);
    job.set("train.exit_interval", "3").expect(75);
    job.set("train.exit_interval", "0");
    const std::string ignoring =
        "trap '' XFSZ; exec \"$0\" train \"$1\"";  // else the signal would end it before errno does
    job.rank_commands({{}, {"bash", "-c", ignoring, TRAINER_EXE, job.recipe().string()}});
    const auto process = job.start();
    ASSERT_TRUE(job.wait_for_step(*process, 5)) << process->output();
    const auto members = process->ranks("trainer");
    ASSERT_EQ(members.size(), 2u);
    const rlimit limit{4096, 4096};
    ASSERT_EQ(::prlimit(members[1], RLIMIT_FSIZE, &limit, nullptr), 0);
    ::kill(members[0], SIGUSR1);  // saves
    const Ended ended = process->wait(30);
    EXPECT_FALSE(ended.timed_out) << ended.output;
    EXPECT_EQ(ended.code, 4) << ended.output;
    EXPECT_EQ(count_of(ended.output, "data_00001.bin: cannot write a checkpoint of"), 1) << ended.output;
    EXPECT_EQ(count_of(ended.output, "rank 1: "), 1) << ended.output;
    EXPECT_EQ(count_of(ended.output, "errno 27"), 1) << ended.output;
    std::ifstream latest(job.run_dir() / "checkpoints" / "latest");
    std::string name;
    latest >> name;
    EXPECT_EQ(name, "step_3");
    // With room again the run goes on from there.
    job.ranks(2).rank_commands({{}, {}}).set("train.train_iters", "6").expect(0);
    EXPECT_EQ(job.steps().size(), 6u);
  }
}

// A folder of checkpoints on each host's own disk: noticed before the first step, and before anything is loaded.
TEST(OneRank, SeesNoCheckpoints) {
  TrainerJob job("one_apart");
  const auto apart = job.folder() / "apart";
  std::filesystem::create_directory(apart);
  job.set("run.dir", "\"run\"").set("train.train_iters", "3").ranks(2);
  const std::string inside = "cd \"$2\"; exec \"$0\" train \"$1\"";
  const auto in = [&](const std::filesystem::path& folder) {
    return std::vector<std::string>{"bash", "-c", inside, TRAINER_EXE, job.recipe().string(), folder.string()};
  };
  job.rank_commands({in(job.folder()), in(apart)});
  const Ended fresh = job.run(30);
  EXPECT_EQ(fresh.code, 4) << fresh.output;
  EXPECT_EQ(count_of(fresh.output, "apart/run/checkpoints: rank 0 has made the folder of checkpoints, but it is not seen here"), 1) << fresh.output;
  EXPECT_TRUE(job.steps().empty());

  job.rank_commands({in(job.folder()), in(job.folder())}).expect(0);
  job.set("train.train_iters", "6").rank_commands({in(job.folder()), in(apart)});
  const Ended resumed = job.run(30);
  EXPECT_FALSE(resumed.timed_out) << resumed.output;
  EXPECT_EQ(resumed.code, 4) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "rank 0 finds step_3 to start from, rank 1 no checkpoint"), 1) << resumed.output;
}

// C18: a disk that fills up. The save that does not fit is refused before it starts, by all ranks, with path, bytes
// needed and errno; what was saved before stays.
TEST(FullDisk, IsToldBeforeASaveStarts) {
  for (const int ranks : {1, 2}) {
    TrainerJob job("disk");
    const auto disk = job.folder() / "disk";
    std::filesystem::create_directory(disk);
    if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=2400k") != 0)
      GTEST_SKIP() << "no right to mount a small file system";
    job.set("checkpoint.save", "\"" + disk.string() + "\"")
        .set("checkpoint.save_interval", "1")
        .set("train.train_iters", "9")
        .ranks(ranks);
    const Ended ended = job.run(30);
    EXPECT_EQ(ended.code, 4) << ended.output;
    EXPECT_EQ(count_of(ended.output, disk.string() + ": a checkpoint needs "), 1) << ended.output;
    EXPECT_EQ(count_of(ended.output, "(errno 28)"), 1) << ended.output;
    EXPECT_EQ(count_of(ended.output, "; checkpoint 0.4 MiB"), 1) << ended.output;
    std::string name;
    std::ifstream(disk / "latest") >> name;
    ASSERT_TRUE(name.starts_with("step_")) << name;
    EXPECT_EQ(difference_of_checkpoints(disk / name, disk / name), "") << "the newest checkpoint cannot be read";
    EXPECT_EQ(std::stoi(name.substr(5)) + 1, job.steps().back().at("step").get<int>());
    ::umount2(disk.c_str(), MNT_DETACH);
  }
}

// The disk of the records is full, that of the checkpoints is not: what was learned is saved, on all ranks.
TEST(FullDisk, OfTheRecordsLosesNoStep) {
  for (const int ranks : {1, 2}) {
    TrainerJob job("full_log");
    const auto disk = job.folder() / "disk";
    std::filesystem::create_directory(disk);
    if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=32k") != 0)
      GTEST_SKIP() << "no right to mount a small file system";
    job.set("log.metrics", "\"" + (disk / "metrics.jsonl").string() + "\"").set("train.train_iters", "1000").ranks(ranks);
    const Ended ended = job.run(60);
    ::umount2(disk.c_str(), MNT_DETACH);
    EXPECT_EQ(ended.code, 4) << ended.output;
    EXPECT_EQ(count_of(ended.output, "metrics.jsonl: cannot append"), 1) << ended.output;
    EXPECT_EQ(count_of(ended.output, "whose state is saved"), 1) << ended.output;
    std::string name;
    std::ifstream(job.run_dir() / "checkpoints" / "latest") >> name;
    ASSERT_TRUE(name.starts_with("step_")) << name << ended.output;
    const int step = std::stoi(name.substr(5));
    EXPECT_EQ(count_of(ended.output, "after step " + std::to_string(step) + ","), 1) << ended.output;
    job.set("log.metrics", "\"" + (job.folder() / "metrics.jsonl").string() + "\"");
    job.set("train.train_iters", std::to_string(step + 1)).expect(0);
    EXPECT_EQ(count_of(job.log(), "continuing after step " + std::to_string(step)), 1);
  }
}

// The first write past the limit is an error as any other, not a signal that ends the run.
TEST(FullDisk, AFileSizeLimitIsTold) {
  TrainerJob job("file_size");
  const auto process = job.set("train.train_iters", "5000").start();
  ASSERT_TRUE(job.wait_for_step(*process, 5)) << process->output();
  const rlimit limit{4096, 4096};
  ASSERT_EQ(::prlimit(process->pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  const Ended ended = process->wait(30);
  EXPECT_EQ(ended.code, 4) << ended.output;  // not 153; the words are lost here, standard error being such a file, too
}

// R05: a plugin keeps a communicator of its own until its destructor; MPI is finalised after that, on errors too.
TEST(Communicators, OfPluginsEndBeforeMpi) {
  for (const int code : {0, 7}) {
    TrainerJob job = job_with_faults("own_group");
    job.set("train.train_iters", "3").set("data.plugin", "\"faults\"").set("train.nan_policy", "\"stop\"");
    job.set("backend.plugin", "\"faults\"")
        .set("backend.fault", "\"nan\"")
        .set("backend.steps", code == 0 ? "[]" : "[2]");
    const Ended ended = job.expect(code);
    EXPECT_EQ(count_of(ended.output, "inaliz"), 0) << ended.output;
    EXPECT_EQ(count_of(ended.output, "inalis"), 0) << ended.output;
  }
}

// Killed from outside: no message of its own, but no hang.
TEST(OneRank, IsKilled) {
  TrainerJob job("one_killed");
  job.ranks(2).set("train.train_iters", "100000");
  const auto process = job.start();
  ASSERT_TRUE(job.wait_for_step(*process, 3));
  const auto members = process->ranks("trainer");
  ASSERT_EQ(members.size(), 2u);
  ::kill(members[1], SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  const Ended ended = process->wait(60);
  EXPECT_FALSE(ended.timed_out) << ended.output;
  EXPECT_NE(ended.code, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(10));
}

}  // namespace
}  // namespace espalier::testing_support
