#!/usr/bin/env bash
# mpi_main_test.sh MPIEXEC PROBE: a failure on any rank fails the whole job at once, and its message is printed with the rank.
set -euo pipefail
mpiexec=$1 probe=$2
export MPIEXEC_TIMEOUT=15
failed=0

job() { "$mpiexec" -n 2 "$probe" "--gtest_filter=$1" 2>&1; }

job 'Probe.passes' >/dev/null || { echo "a job without a failure failed"; failed=1; }

expect_failure() {
  local said
  if said=$(job "$1"); then
    echo "$1 passed"
    failed=1
  elif ! grep -qF "$2" <<<"$said"; then
    echo "$1: '$2' is not in: $said"
    failed=1
  fi
}
expect_failure 'Probe.needs_three_ranks' 'mpiexec -n 3'
expect_failure 'Probe.rank_one_fails_and_rank_zero_waits' 'reason of rank one'
expect_failure 'Probe.rank_one_fails_and_rank_zero_waits' '[rank 1]'
expect_failure 'Probe.rank_one_throws_and_rank_zero_waits' '[rank 1]'
expect_failure 'Probe.rank_one_expects_in_vain' '[rank 1]'
expect_failure 'Probe.no_such_test' 'no test ran'
export ESPALIER_EXPECT_RANKS=3
expect_failure 'Probe.passes' 'expected 3 ranks, found 2'
exit "$failed"
