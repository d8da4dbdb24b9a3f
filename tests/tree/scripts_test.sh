#!/usr/bin/env bash
# Every shell script of the tree passes shellcheck.
#   scripts_test.sh SOURCE_DIR
set -euo pipefail
cd "$1"
mapfile -t scripts < <(find .ci scripts bench tests examples \( -name '*.sh' -o -path .ci/run \) -type f | sort)
[ ${#scripts[@]} -gt 10 ] || { echo "scripts_test.sh: found only ${#scripts[@]} scripts" >&2; exit 1; }
# SC2054 takes the commas of -fsanitize=address,undefined for a slip.
shellcheck --severity=warning --exclude=SC2054 "${scripts[@]}"
echo "${#scripts[@]} scripts are clean"
