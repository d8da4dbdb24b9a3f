#include <charconv>
#include <cstdlib>
#include <string>

#include "espalier/communicator.hpp"

namespace espalier {
namespace {

int read_int(const char* variable, int fallback) {
  const char* text = std::getenv(variable);
  int value = fallback;
  if (text != nullptr) std::from_chars(text, text + std::char_traits<char>::length(text), value);
  return value;
}

/// Tasks on node number `node` of SLURM's list "4(x2),3": two nodes of 4, one of 3. 1 where the list ends before.
int slurm_tasks_on(const char* list, int node) {
  if (list == nullptr) return 1;
  const char* end = list + std::char_traits<char>::length(list);
  while (list < end) {
    int tasks = 1, nodes = 1;
    list = std::from_chars(list, end, tasks).ptr;
    if (end - list > 2 && list[0] == '(' && list[1] == 'x') list = std::from_chars(list + 2, end, nodes).ptr + 1;
    if (node < nodes) return tasks;
    node -= nodes;
    list += 1;  // the comma
  }
  return 1;
}

}  // namespace

Launch detect_launch() {
  Launch launch;
  // The innermost launcher comes first: mpiexec inside a SLURM job sees the job's variables too.
  for (const char* variable :
       {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    if (const int tasks = read_int(variable, 0); tasks > 0) {
      launch.launched_tasks = tasks;
      launch.launcher = variable;
      break;
    }
  }
  if (std::getenv("MPI_LOCALNRANKS") != nullptr) {
    launch.local_rank = read_int("MPI_LOCALRANKID", 0);
    launch.local_size = read_int("MPI_LOCALNRANKS", 1);
  } else if (std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE") != nullptr) {
    launch.local_rank = read_int("OMPI_COMM_WORLD_LOCAL_RANK", 0);
    launch.local_size = read_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
  } else if (std::getenv("SLURM_LOCALID") != nullptr) {
    const char* list = std::getenv("SLURM_STEP_TASKS_PER_NODE");
    if (list == nullptr) list = std::getenv("SLURM_TASKS_PER_NODE");
    launch.local_rank = read_int("SLURM_LOCALID", 0);
    launch.local_size = slurm_tasks_on(list, read_int("SLURM_NODEID", 0));
  }
  return launch;
}

}  // namespace espalier
