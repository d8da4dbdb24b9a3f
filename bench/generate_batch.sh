#!/usr/bin/env bash
# Prompts that go through the model together against one by one: tokens/s of both, side by side, and whether the texts are the same. Weights of
# one step in FP32.
#   bench/generate_batch.sh TRAINER [PROMPTS] [TOKENS] [HIDDEN] [LAYERS] [--set KEY=VALUE ...]
set -euo pipefail
trainer=$1 prompts=${2:-8} tokens=${3:-64} hidden=${4:-192} layers=${5:-4}
shift $(($# < 5 ? $# : 5))
# shellcheck source=bench/generate_pair.sh
source "$(dirname "${BASH_SOURCE[0]}")/generate_pair.sh"
train_one_step "$trainer" "$layers" "$hidden" 32 1 "$@"
text="The files are read once, then closed; what they held is kept in memory until the program ends or is told to forget it."
arguments=()
for ((i = 0; i < prompts; ++i)); do arguments+=(--prompt "${text:0:$((4 + 9 * i % 100))}"); done # of different lengths
together() { run together --tokens "$tokens" "${arguments[@]}" --batch "$prompts"; }
single() { run single --tokens "$tokens" "${arguments[@]}" --batch 1; }
compare together single
$same && said="the same texts" || said="DIFFERENT TEXTS"
awk -v a="$best_first" -v b="$best_second" -v p="$prompts" -v n="$tokens" -v same="$said" \
  'BEGIN { printf "%d prompts of %d tokens: %.0f tokens/s together, %.0f one by one, ratio %.1f; %s\n", p, n, a, b, a / b, same }'
$same
