#!/usr/bin/env bash
# However a job ends, it ends soon, with the exit code of the cause and the cause on standard error.
#   ending_test.sh MPIEXEC PROBE
set -u
mpiexec=$1
probe=$2
failed=0

# expect CODES TEXT TIMES COMMAND...: ends within 20 s with CODES (one, or several with | between them), TEXT printed TIMES times, nothing about use after finalisation.
expect() {
  local codes=$1 text=$2 times=$3 output status count
  shift 3
  output=$(timeout 20 "$@" 2>&1)
  status=$?
  count=$(grep -cF -- "$text" <<<"$output")
  if ! [[ "|$codes|" == *"|$status|"* ]] || [ "$count" -ne "$times" ] || grep -qi 'finaliz' <<<"$output"; then
    echo "$*: expected exit $codes and $times times \"$text\", found exit $status and $count times:"
    echo "$output"
    failed=1
  fi
}

for ranks in 1 2 4; do
  last="rank $((ranks - 1)): "
  [ "$ranks" -gt 1 ] || last=""
  expect 0 "" 1 "$mpiexec" -n "$ranks" "$probe" quiet
  expect 0 "" 1 "$mpiexec" -n "$ranks" "$probe" late
  expect 42 "${last}the disk is full" 1 "$mpiexec" -n "$ranks" "$probe" abort
  # The launcher kills the other ranks, and on a busy machine may reap one of them (9) before the one that left with 4.
  expect "4|9" "data.bin: cannot be read" 1 "$mpiexec" -n "$ranks" "$probe" alone
  expect 4 "${last}data.bin: cannot be read" "$ranks" "$mpiexec" -n "$ranks" "$probe" together
done
expect 5 "rank 1: group data: destroyed with 1 open operations" 1 "$mpiexec" -n 2 "$probe" open
# Without a launcher, and started by the launcher of another MPI.
expect 0 "" 1 "$probe" quiet
expect 5 "OMPI_COMM_WORLD_SIZE says that 4 tasks were started, but MPI sees a world of 1" 1 env OMPI_COMM_WORLD_SIZE=4 "$probe" quiet
exit "$failed"
