#!/usr/bin/env bash
# Prompts that go through the model together against one by one: tokens/s of both, side by side, and whether the texts are the same. Weights of
# one step in FP32.
#   bench/generate_batch.sh TRAINER [PROMPTS] [TOKENS] [HIDDEN] [LAYERS] [--set KEY=VALUE ...]
set -euo pipefail
trainer=$(realpath "$1") prompts=${2:-8} tokens=${3:-64} hidden=${4:-192} layers=${5:-4}
shift $(($# < 5 ? $# : 5))
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >recipe.toml <<RECIPE
[run]
dir = "run"
[model]
layers = $layers
hidden = $hidden
heads = 12
vocab_size = 384
seq_length = 32
[train]
train_iters = 1
global_batch_size = 1
micro_batch_size = 1
lr = 1e-3
[optimizer]
plugin = "optim_fp32"
[backend]
plugin = "kernels_fused"
[data]
plugin = "synthetic"
RECIPE
"$trainer" train recipe.toml "$@" >train.log 2>&1 || { cat train.log >&2; exit 1; }
text="The files are read once, then closed; what they held is kept in memory until the program ends or is told to forget it."
arguments=()
for ((i = 0; i < prompts; ++i)); do arguments+=(--prompt "${text:0:$((4 + 9 * i % 100))}"); done # of different lengths
run() { # NAME ARGUMENT...
  local name=$1
  shift
  "$trainer" generate --checkpoint run --tokens "$tokens" --greedy --ignore-end --no-echo "${arguments[@]}" "$@" >"$name.txt" 2>"$name.log"
  sed -nE 's/.* ([0-9]+) tokens in ([0-9.]+) s.*/\1 \2/p' "$name.log" | awk '{print $1 / $2}'
}
# Interleaved, the better of three: other programs disturb both alike.
best_together=0 best_single=0
for _ in 1 2 3; do
  together=$(run together --batch "$prompts") single=$(run single --batch 1)
  best_together=$(awk -v a="$together" -v b="$best_together" 'BEGIN { print (a > b ? a : b) }')
  best_single=$(awk -v a="$single" -v b="$best_single" 'BEGIN { print (a > b ? a : b) }')
done
cmp -s together.txt single.txt && same="the same texts" || same="DIFFERENT TEXTS"
awk -v a="$best_together" -v b="$best_single" -v p="$prompts" -v n="$tokens" -v same="$same" \
  'BEGIN { printf "%d prompts of %d tokens: %.0f tokens/s together, %.0f one by one, ratio %.1f; %s\n", p, n, a, b, a / b, same }'
[ "$same" = "the same texts" ]
