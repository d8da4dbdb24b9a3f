// Main of the tests that run under mpiexec: prints the failures of all ranks with their rank, and ends the whole job on
// the first one, since the other ranks would wait for ever in a collective that the failed rank has left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "support/mpi_test.hpp"

namespace espalier::testing_support {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

namespace {

// mpiexec drops what it has not yet read from a rank when the job aborts: give it time to pass on the reason.
[[noreturn]] void abort_job() {
  std::fflush(nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

class AbortOnFailure : public testing::EmptyTestEventListener {
 public:
  explicit AbortOnFailure(int rank) : rank_(rank) {}

  void OnTestStart(const testing::TestInfo& info) override {
    suite_ = info.test_suite_name();
    name_ = info.name();
  }

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s.%s failed at %s:%d\n[rank %d] %s\n", rank_, suite_, name_,
                 result.file_name() != nullptr ? result.file_name() : "unknown file", result.line_number(), rank_,
                 result.summary());
    // After a failed EXPECT the test goes on, and so do its collectives: let it say more before the job ends.
    if (result.fatally_failed()) abort_job();
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    if (info.result()->Failed()) abort_job();
  }

 private:
  int rank_;
  const char* suite_ = "start";
  const char* name_ = "up";
};

}  // namespace
}  // namespace espalier::testing_support

int main(int argc, char** argv) {
  using namespace espalier::testing_support;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  testing::InitGoogleMock(&argc, argv);

  // Under the mpiexec of another MPI each process would see a world of one, and every test would pass untested.
  if (const char* expected = std::getenv("ESPALIER_EXPECT_RANKS");
      expected != nullptr && std::atoi(expected) != world_size()) {
    std::fprintf(stderr, "expected %s ranks, found %d: is mpiexec of the MPI that the tests are linked with?\n",
                 expected, world_size());
    abort_job();
  }

  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world_rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new AbortOnFailure(world_rank()));

  int status = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    if (world_rank() == 0) std::fputs("no test ran\n", stderr);
    status = 1;
  }
  MPI_Finalize();
  return status;
}
