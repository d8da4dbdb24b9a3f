# shellcheck shell=bash
# Two ways of generating the same text, side by side: for generate_batch.sh and generate_cache.sh, which source it.
set -euo pipefail

# train_one_step TRAINER LAYERS HIDDEN SEQ BATCH [ARGUMENT...]: weights of one step in FP32, in run/ of a new working directory that goes with the script.
train_one_step() {
  trainer=$(realpath "$1")
  local layers=$2 hidden=$3 seq=$4 batch=$5
  shift 5
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
seq_length = $seq
[train]
train_iters = 1
global_batch_size = $batch
micro_batch_size = $batch
lr = 1e-3
[optimizer]
plugin = "optim_fp32"
[backend]
plugin = "kernels_fused"
[data]
plugin = "synthetic"
RECIPE
  "$trainer" train recipe.toml "$@" >train.log 2>&1 || { cat train.log >&2; exit 1; }
}

# run NAME ARGUMENT...: a text in NAME.txt; prints tokens/s.
run() {
  local name=$1
  shift
  "$trainer" generate --checkpoint run --greedy --ignore-end --no-echo "$@" >"$name.txt" 2>"$name.log"
  sed -nE 's/.* ([0-9]+) tokens in ([0-9.]+) s.*/\1 \2/p' "$name.log" | awk '{print $1 / $2}'
}

# compare FIRST SECOND: calls both functions, three rounds in turn, since other programs disturb both alike; the better tokens/s of each in
# $best_first and $best_second, and whether FIRST.txt is SECOND.txt as $same.
compare() {
  local first second
  best_first=0 best_second=0
  for _ in 1 2 3; do
    first=$("$1") second=$("$2")
    best_first=$(awk -v a="$first" -v b="$best_first" 'BEGIN { print (a > b ? a : b) }')
    best_second=$(awk -v a="$second" -v b="$best_second" 'BEGIN { print (a > b ? a : b) }')
  done
  # shellcheck disable=SC2034  # for the caller
  same=false
  # shellcheck disable=SC2034
  if cmp -s "$1.txt" "$2.txt"; then same=true; fi
}
