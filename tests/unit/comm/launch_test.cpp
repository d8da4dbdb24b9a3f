#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "espalier/communicator.hpp"

namespace espalier {
namespace {

constexpr const char* kVariables[] = {"PMI_SIZE",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "MV2_COMM_WORLD_SIZE",
                                      "SLURM_NTASKS",
                                      "SLURM_STEP_NUM_TASKS",
                                      "SLURM_STEP_TASKS_PER_NODE",
                                      "SLURM_LOCALID",
                                      "SLURM_NODEID",
                                      "SLURM_TASKS_PER_NODE",
                                      "MPI_LOCALRANKID",
                                      "MPI_LOCALNRANKS",
                                      "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE"};

Launch detect_with(const std::map<std::string, std::string>& environment) {
  for (const char* variable : kVariables) unsetenv(variable);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  const Launch launch = detect_launch();
  for (const char* variable : kVariables) unsetenv(variable);
  return launch;
}

TEST(DetectLaunch, AloneWithoutALauncher) {
  const Launch launch = detect_with({});
  EXPECT_EQ(launch.launched_tasks, 1);
  EXPECT_EQ(launch.local_size, 1);
  EXPECT_EQ(launch.launcher, "");
}

TEST(DetectLaunch, Hydra) {
  const Launch launch = detect_with({{"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "3"}, {"MPI_LOCALNRANKS", "4"}});
  EXPECT_EQ(launch.launched_tasks, 8);
  EXPECT_EQ(launch.launcher, "PMI_SIZE");
  EXPECT_EQ(launch.local_rank, 3);
  EXPECT_EQ(launch.local_size, 4);
}

TEST(DetectLaunch, AnotherMpi) {
  const Launch launch = detect_with(
      {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(launch.launched_tasks, 2);
  EXPECT_EQ(launch.launcher, "OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(launch.local_rank, 1);
}

TEST(DetectLaunch, SlurmCountsTheTasksOfItsNode) {
  for (const auto& [node, tasks] : std::map<std::string, int>{{"0", 4}, {"1", 4}, {"2", 3}, {"3", 1}, {"9", 1}}) {
    const Launch launch = detect_with({{"SLURM_NTASKS", "16"},
                                       {"SLURM_STEP_NUM_TASKS", "12"},
                                       {"SLURM_LOCALID", "2"},
                                       {"SLURM_NODEID", node},
                                       {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3,1"}});
    EXPECT_EQ(launch.launched_tasks, 12);
    EXPECT_EQ(launch.local_rank, 2);
    EXPECT_EQ(launch.local_size, tasks) << "node " << node;
  }
}

TEST(DetectLaunch, TheInnermostLauncherCounts) {
  EXPECT_EQ(detect_with({{"PMI_SIZE", "2"}, {"SLURM_NTASKS", "16"}}).launched_tasks, 2);
  EXPECT_EQ(detect_with({{"PMI_SIZE", "none"}, {"SLURM_NTASKS", "16"}}).launched_tasks, 16);
}

}  // namespace
}  // namespace espalier
