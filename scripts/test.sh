#!/usr/bin/env bash
# Configures, builds and tests in build/, exactly as CI does.
#   scripts/test.sh            the tests labelled fast (at most 15 minutes on two cores)
#   scripts/test.sh --long     every test, the long ones too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

workflow=ci
case "${1:-}" in
  "") ;;
  --long) workflow=long ;;
  *)
    echo "test.sh: unknown argument '$1' (known: --long)" >&2
    exit 2
    ;;
esac

bash scripts/install-deps.sh

# The list needs a configured tree and comes first, so that ctest's own summary is the last thing printed.
cmake --preset ci
if [ "$workflow" = ci ]; then
  left_out=$(ctest --test-dir build -N -L '^long$' | sed -nE 's/^ *Test +#[0-9]+: /  /p')
  if [ -n "$left_out" ]; then
    echo "test.sh: not run (labelled long; scripts/test.sh --long runs them):"
    echo "$left_out"
  else
    echo "test.sh: no test is labelled long; everything is run"
  fi
fi
exec cmake --workflow --preset "$workflow"
