#!/usr/bin/env bash
# Runs scripts/quickstart.sh as a user would, in a clone of its own: stopped by Ctrl-C while it trains, run again to the end, run once more.
# Needs the package manager and 20 minutes. Arguments: the source tree; more --set options.
set -euo pipefail
source=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q "$source" "$work/tree"
cd "$work/tree"

fail() { echo "quickstart: $1" >&2; tail -n 40 "$work/log" >&2; exit 1; }
expect() { grep -qE -- "$1" "$work/log" || fail "no line matches \"$1\""; }

echo "== arguments"
scripts/quickstart.sh --help | grep -q 'scripts/quickstart.sh --set' || fail "--help says nothing"
code=0
scripts/quickstart.sh --fast >"$work/log" 2>&1 || code=$?
[ "$code" -eq 2 ] || fail "an unknown argument gave exit code $code"

echo "== stopped while it trains"
# A background job of a script ignores Ctrl-C unless told otherwise.
setsid env --default-signal=INT scripts/quickstart.sh "$@" >"$work/log" 2>&1 &
pid=$!
until grep -q 'iteration *100/' "$work/log"; do
  kill -0 "$pid" 2>/dev/null || fail "ended before it trained"
  sleep 1
done
kill -INT -- "-$pid"
code=0
wait "$pid" || code=$?
[ "$code" -eq 130 ] || fail "Ctrl-C gave exit code $code"
expect 'validation: [0-9.]+ bits per byte \(start'
expect 'successfully saved checkpoint'
expect 'stopped in "5/6 training"'

echo "== run again to the end"
start=$SECONDS
scripts/quickstart.sh "$@" >"$work/log" 2>&1 || fail "exit code $?"
expect 'continuing after step [0-9]+'
expect '== done'
bits=$(sed -nE 's/.*validation: ([0-9.]+) bits per byte \(end.*/\1/p' "$work/log")
awk -v bits="$bits" 'BEGIN { exit !(bits > 0 && bits < 2.8) }' || fail "$bits bits per byte; below 2.8 was expected"
echo "validation: $bits bits per byte, $((SECONDS - start)) s"

echo "== run once more"
start=$SECONDS
scripts/quickstart.sh "$@" >"$work/log" 2>&1 || fail "exit code $?"
expect 'nothing to train: step [0-9]+ of [0-9]+ is done'
expect "validation: $bits bits per byte"
expect 'generate: [0-9]+ tokens'
echo "quickstart: all passed"
