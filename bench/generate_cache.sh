#!/usr/bin/env bash
# Generation with the key/value cache against computing each token from the whole text again: tokens/s of both, side by side, and whether the
# texts are the same. The model has the quickstart's shape and weights of one step in FP32.
#   bench/generate_cache.sh TRAINER [TOKENS] [--set KEY=VALUE ...]
set -euo pipefail
trainer=$1 tokens=${2:-512}
shift $(($# < 2 ? $# : 2))
# shellcheck source=bench/generate_pair.sh
source "$(dirname "${BASH_SOURCE[0]}")/generate_pair.sh"
train_one_step "$trainer" 4 192 128 2 "$@"
with() { run with --prompt "The " --tokens "$tokens"; }
without() { run without --prompt "The " --tokens "$tokens" --no-cache; }
compare with without
$same && said="the same text" || said="DIFFERENT TEXTS"
awk -v a="$best_first" -v b="$best_second" -v n="$tokens" -v same="$said" \
  'BEGIN { printf "%d tokens: %.0f tokens/s with the cache, %.0f without, ratio %.1f; %s\n", n, a, b, a / b, same }'
$same
