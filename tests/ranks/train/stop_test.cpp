// Signals and limits: the state is saved after the step in progress, by all ranks, and the run goes on from there to
// the bit.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <map>

#include "support/trainer_job.hpp"

namespace espalier::testing_support {
namespace {

enum class Whom { mpiexec, first_rank, last_rank };

constexpr int kSteps = 40;

void prepare(TrainerJob& job, int ranks) {
  job.set("train.train_iters", std::to_string(kSteps)).set("model.layers", "1").ranks(ranks);
}

/// The run that nothing stops.
const TrainerJob& straight_run(int ranks) {
  static std::map<int, TrainerJob> runs;
  const auto known = runs.find(ranks);
  if (known != runs.end()) return known->second;
  TrainerJob& job = runs.emplace(ranks, "straight_" + std::to_string(ranks)).first->second;
  prepare(job, ranks);
  job.expect(0);
  return job;
}

void expect_same(const TrainerJob& stopped, int ranks) {
  const TrainerJob& straight = straight_run(ranks);
  EXPECT_EQ(difference_of_steps(straight.steps(), stopped.steps(), 1, kSteps), "");
  EXPECT_EQ(difference_of_checkpoints(straight.checkpoint(kSteps), stopped.checkpoint(kSteps)), "");
}

void expect_stop_and_resume(const std::string& name, int ranks, int signal, Whom whom) {
  straight_run(ranks);
  TrainerJob stopped(name);
  prepare(stopped, ranks);
  const auto process = stopped.start();
  ASSERT_TRUE(stopped.wait_for_step(*process, 3)) << process->output();
  const auto members = process->ranks("trainer");
  ASSERT_EQ(members.size(), static_cast<std::size_t>(ranks));
  const pid_t target = whom == Whom::mpiexec      ? process->pid()
                       : whom == Whom::first_rank ? members.front()
                                                  : members.back();
  ASSERT_EQ(::kill(target, signal), 0);
  const Ended ended = process->wait(30);
  ASSERT_FALSE(ended.timed_out) << ended.output;
  // Hydra itself, when it is signalled while its ranks end, now and then forgets their exit code.
  EXPECT_TRUE(ended.code == 75 || (whom == Whom::mpiexec && ended.code == 0)) << ended.code << ": " << ended.output;
  const int done = stopped.steps().back().at("step");
  EXPECT_LT(done, kSteps) << "the signal did not stop the run";
  EXPECT_TRUE(std::filesystem::exists(stopped.checkpoint(done) / "manifest.json"));
  EXPECT_EQ(count_of(ended.output, "run the same command again to go on"), 1) << ended.output;
  stopped.expect(0);
  expect_same(stopped, ranks);
}

TEST(Stop, InterruptOnOneRank) { expect_stop_and_resume("int", 1, SIGINT, Whom::first_rank); }
TEST(Stop, TerminateToTheLastOfTwo) { expect_stop_and_resume("term2", 2, SIGTERM, Whom::last_rank); }
TEST(Stop, UserSignalToTheFirstOfTwo) { expect_stop_and_resume("usr2", 2, SIGUSR1, Whom::first_rank); }
TEST(Stop, UserSignalToTheLauncher) { expect_stop_and_resume("usrm", 2, SIGUSR1, Whom::mpiexec); }
// Without mpiexec: MPICH must not ask a launcher that is not there.
TEST(Stop, UserSignalOnOneRank) { expect_stop_and_resume("usr1", 1, SIGUSR1, Whom::first_rank); }
// What schedulers send ahead of their end, and a terminal that closes.
TEST(Stop, SecondUserSignalOnOneRank) { expect_stop_and_resume("usr12", 1, SIGUSR2, Whom::first_rank); }
TEST(Stop, ProcessorTimeOnOneRank) { expect_stop_and_resume("xcpu", 1, SIGXCPU, Whom::first_rank); }
TEST(Stop, HangUpOnOneRank) { expect_stop_and_resume("hup1", 1, SIGHUP, Whom::first_rank); }
TEST(Stop, HangUpToTheLastOfTwo) { expect_stop_and_resume("hup2", 2, SIGHUP, Whom::last_rank); }

TEST(Stop, HangUpUnderNohupIsIgnored) {
  TrainerJob job("nohup");
  prepare(job, 1);
  job.rank_commands({{"bash", "-c", "trap '' HUP; exec \"$0\" train \"$1\"", TRAINER_EXE, job.recipe().string()}});
  const auto process = job.start();
  ASSERT_TRUE(job.wait_for_step(*process, 3)) << process->output();
  ASSERT_EQ(::kill(process->ranks("trainer").front(), SIGHUP), 0);
  const Ended ended = process->wait(30);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(job.steps().size(), static_cast<std::size_t>(kSteps));
  EXPECT_EQ(count_of(ended.output, "DEBUG"), 0) << ended.output;
}

TEST(Stop, TerminateToOneOfFour) { expect_stop_and_resume("term4", 4, SIGTERM, Whom::last_rank); }

TEST(Stop, WithoutCheckpointsItSaysThatNothingIsSaved) {
  TrainerJob job("none_saved");
  prepare(job, 1);
  job.set("checkpoint.save_interval", "-1");
  const auto process = job.start();
  ASSERT_TRUE(job.wait_for_step(*process, 3)) << process->output();
  ASSERT_EQ(::kill(process->ranks("trainer").front(), SIGTERM), 0);
  const Ended ended = process->wait(30);
  EXPECT_EQ(ended.code, 75) << ended.output;
  EXPECT_EQ(count_of(ended.output, "checkpoint.save_interval = -1: nothing is saved"), 1) << ended.output;
  EXPECT_EQ(count_of(ended.output, "saving checkpoint"), 0) << ended.output;
}

// Ctrl-C at a terminal reaches mpiexec, which passes it on and waits.
TEST(Stop, InterruptToTheLauncher) { expect_stop_and_resume("intm", 2, SIGINT, Whom::mpiexec); }

TEST(Stop, TimeLimitSavesAndGoesOn) {
  TrainerJob stopped("limit");
  prepare(stopped, 2);
  stopped.set("train.exit_duration_in_mins", "1e-9");
  const Ended ended = stopped.expect(75);
  EXPECT_NE(ended.output.find("the time limit (train.exit_duration_in_mins) after step 1;"), std::string::npos)
      << ended.output;
  stopped.set("train.exit_duration_in_mins", "0.0").expect(0);
  expect_same(stopped, 2);
}

// R07: the clock of one rank jumps ahead by a minute, beyond the limit of half a minute.
TEST(Stop, ClocksThatDifferStopAllAtTheSameStep) {
  TrainerJob job("clocks");
  prepare(job, 2);
  job.set("train.train_iters", "1000000").set("train.exit_duration_in_mins", "0.5");
  job.rank_commands(
      {{}, {"-env", "LD_PRELOAD", FAULTS_DIR "/libshifted_clock.so", TRAINER_EXE, "train", job.recipe().string()}});
  const Ended ended = job.expect(75, 25);
  EXPECT_EQ(count_of(ended.output, "the time limit (train.exit_duration_in_mins) after step"), 1) << ended.output;
  const int done = job.steps().back().at("step");
  EXPECT_TRUE(std::filesystem::exists(job.checkpoint(done) / "manifest.json"));
}

// One rank alone reaches the limit; all stop after the same step, and say so once.
TEST(Stop, LimitOfOneRankStopsAllAtTheSameStep) {
  TrainerJob job("one_clock");
  prepare(job, 2);
  const auto own = job.folder() / "own.toml";
  {
    std::ofstream out(own);
    out << "include = [\"recipe.toml\"]\n[train]\nexit_interval = 7\n";
  }
  job.rank_commands({{}, {TRAINER_EXE, "train", own.string()}});
  const Ended ended = job.expect(75);
  EXPECT_EQ(job.steps().back().at("step"), 7);
  EXPECT_EQ(count_of(ended.output, "after step 7; run the same command again"), 1) << ended.output;
}

}  // namespace
}  // namespace espalier::testing_support
