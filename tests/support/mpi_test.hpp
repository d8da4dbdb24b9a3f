// For tests that run under mpiexec (espalier_add_mpi_test). The main has initialised MPI with MPI_THREAD_MULTIPLE
// before any test and finalises it at the end. A failed assertion on any rank is printed with its rank and ends the
// whole job.
#pragma once

#include <gtest/gtest.h>

namespace espalier::testing_support {

/// Rank of this process in MPI_COMM_WORLD.
int world_rank();
/// Number of processes in MPI_COMM_WORLD.
int world_size();

}  // namespace espalier::testing_support

/// Fails (never skips) the test when the job has fewer than `n` ranks. First line of a test that needs several.
#define ESPALIER_REQUIRE_RANKS(n) \
  ASSERT_GE(::espalier::testing_support::world_size(), n) << "run it with mpiexec -n " << (n) << " or more"
