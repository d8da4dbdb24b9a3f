#!/usr/bin/env bash
# Generation with the key/value cache against computing each token from the whole text again: tokens/s of both, side by side, and whether the
# texts are the same. The model has the quickstart's shape and weights of one step in FP32.
#   bench/generate_cache.sh TRAINER [TOKENS] [--set KEY=VALUE ...]
set -euo pipefail
trainer=$(realpath "$1") tokens=${2:-512}
shift $(($# < 2 ? $# : 2))
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >recipe.toml <<'RECIPE'
[run]
dir = "run"
[model]
layers = 4
hidden = 192
heads = 12
vocab_size = 384
seq_length = 128
[train]
train_iters = 1
global_batch_size = 2
micro_batch_size = 2
lr = 1e-3
[optimizer]
plugin = "optim_fp32"
[backend]
plugin = "kernels_fused"
[data]
plugin = "synthetic"
RECIPE
"$trainer" train recipe.toml "$@" >train.log 2>&1 || { cat train.log >&2; exit 1; }
run() { # NAME ARGUMENT...
  local name=$1
  shift
  "$trainer" generate --checkpoint run --prompt "The " --tokens "$tokens" --greedy --ignore-end --no-echo "$@" >"$name.txt" 2>"$name.log"
  sed -nE 's/.* ([0-9]+) tokens in ([0-9.]+) s.*/\1 \2/p' "$name.log" | awk '{print $1 / $2}'
}
# Interleaved, the better of three: other programs disturb both alike.
best_with=0 best_without=0
for _ in 1 2 3; do
  with=$(run with) without=$(run without --no-cache)
  best_with=$(awk -v a="$with" -v b="$best_with" 'BEGIN { print (a > b ? a : b) }')
  best_without=$(awk -v a="$without" -v b="$best_without" 'BEGIN { print (a > b ? a : b) }')
done
cmp -s with.txt without.txt && same="the same text" || same="DIFFERENT TEXTS"
awk -v a="$best_with" -v b="$best_without" -v n="$tokens" -v same="$same" \
  'BEGIN { printf "%d tokens: %.0f tokens/s with the cache, %.0f without, ratio %.1f; %s\n", n, a, b, a / b, same }'
[ "$same" = "the same text" ]
