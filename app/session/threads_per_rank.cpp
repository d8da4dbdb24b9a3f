#include "session/threads_per_rank.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace espalier::app {

int threads_per_rank(int asked, int ranks_on_host) {
  if (asked > 0) return asked;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::max(1, cores / std::max(1, ranks_on_host));
}

void prepare_openmp(int threads) {
  // NOLINTBEGIN(concurrency-mt-unsafe): no thread that reads the environment runs yet
  ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 0);
  ::setenv("OMP_WAIT_POLICY", "passive", 0);
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace espalier::app
