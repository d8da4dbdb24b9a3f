#!/usr/bin/env bash
# How many times as fast as the reference kernels kernels_fused trains a model, at the machine's own instruction set and at AVX2.
#   bench/step_ratio.sh TRAINER [RECIPE] [AT_LEAST]
# RECIPE gives [model] and [optimizer] (configs/quickstart.toml); data are synthetic, one rank, one thread. Compares the fastest steps after
# the first, which pays for caches and code generation, and fails below AT_LEAST (8).
set -euo pipefail
trainer=$1
recipe=${2:-$(dirname "${BASH_SOURCE[0]}")/../configs/quickstart.toml}
at_least=${3:-8}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# step_seconds NAME STEPS BACKEND-LINES...: seconds of the fastest step.
step_seconds() {
  local name=$1 steps=$2
  shift 2
  {
    awk '/^\[/ { use = $1 == "[model]" || $1 == "[optimizer]" } use' "$recipe"
    printf '[run]\ndir = "%s"\n[train]\ntrain_iters = %d\nglobal_batch_size = 2\nmicro_batch_size = 2\nlr = 1e-3\nlr_decay_style = "constant"\n' \
      "$folder/$name" "$steps"
    printf '[data]\nplugin = "synthetic"\n[log]\ninterval = 1\n[backend]\n'
    printf '%s\n' "$@"
  } >"$folder/$name.toml"
  OMP_NUM_THREADS=1 taskset -c "$(taskset -cp $$ | sed 's/.*: *//; s/[,-].*//')" \
    "$trainer" train "$folder/$name.toml" >"$folder/$name.log" 2>&1 || { cat "$folder/$name.log" >&2; exit 1; }
  grep -o '"step time (s)":[0-9.e+-]*' "$folder/$name/metrics.jsonl" | sed 's/.*://' | tail -n +2 | sort -g | head -1
}

reference=$(step_seconds reference 3 'plugin = "reference"')
printf 'reference: %s s a step\n' "$reference"
for set in auto avx2; do
  seconds=$(step_seconds "$set" 40 'plugin = "kernels_fused"' "instruction_set = \"$set\"")
  grep -o 'backend: kernels_fused.*' "$folder/$set.log" | head -1
  awk -v r="$reference" -v s="$seconds" -v least="$at_least" 'BEGIN {
    printf "  %s s a step: %.1f times as fast as the reference (at least %s)\n", s, r / s, least
    exit !(s > 0 && r / s >= least) }'
done
