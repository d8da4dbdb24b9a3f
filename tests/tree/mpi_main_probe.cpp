// Tests that fail on purpose, for mpi_main_test.sh: it picks one with --gtest_filter and expects the job to fail.
#include <mpi.h>

#include <stdexcept>

#include "support/mpi_test.hpp"

namespace {

using espalier::testing_support::world_rank;

TEST(Probe, passes) { ESPALIER_REQUIRE_RANKS(1); }

TEST(Probe, needs_three_ranks) { ESPALIER_REQUIRE_RANKS(3); }

TEST(Probe, rank_one_fails_and_rank_zero_waits) {
  if (world_rank() == 1) FAIL() << "reason of rank one";
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Probe, rank_one_throws_and_rank_zero_waits) {
  if (world_rank() == 1) throw std::runtime_error("reason of rank one");
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(Probe, rank_one_expects_in_vain) {
  EXPECT_NE(world_rank(), 1) << "reason of rank one";
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace
