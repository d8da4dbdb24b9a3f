#!/usr/bin/env bash
# What reading batches costs a training step of the quickstart's model: the share of a step that the training thread waits for its batch
# (which it reads where the loader's thread wrote it, without a copy), and what that thread takes beside it.
#   bench/loader_share.sh TRAINER [RANKS] [STEPS] [AT_MOST]
# Tokens are this repository's texts in bytes, blended from four pairs; one thread a rank. Fails above AT_MOST percent (1) of waiting.
set -euo pipefail
trainer=$(realpath "$1")
ranks=${2:-2}
steps=${3:-400}
at_most=${4:-1}
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
part=0
for place in docs core plugins app; do
  find "$root/$place" -type f \( -name '*.md' -o -name '*.cpp' -o -name '*.hpp' \) -print0 | sort -z | xargs -0 cat >"$place.txt"
  "$trainer" preprocess --input "$place.txt" --output "$place" --split-paragraphs >/dev/null 2>preprocess.log || { cat preprocess.log >&2; exit 1; }
  part=$((part + 1))
  printf '[[data.train]]\npath = "%s"\nweight = %d\n' "$place" "$part" >>blend.toml
done
awk '/^\[/ { use = $1 == "[model]" || $1 == "[optimizer]" || $1 == "[backend]" || $1 == "[parallel.data]" } use' "$root/configs/quickstart.toml" >run.toml
printf '[run]\ndir = "run"\n[train]\ntrain_iters = %d\nglobal_batch_size = 4\nmicro_batch_size = 2\nlr = 1e-3\nlr_decay_style = "constant"\n' "$steps" >>run.toml
printf '[log]\ninterval = 100\n[tokenizer]\nplugin = "bytes"\n[data]\nplugin = "data_indexed"\n' >>run.toml
cat blend.toml >>run.toml
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)
OMP_NUM_THREADS=1 "$mpiexec" -n "$ranks" "$trainer" train run.toml >run.log 2>&1 || { cat run.log >&2; exit 1; }
line=$(grep -o 'waited [0-9.]* s for batches.*' run.log | head -1)
printf '%d ranks, %d steps: %s\n' "$ranks" "$steps" "$line"
awk -v line="$line" -v most="$at_most" 'BEGIN {
  split(line, word, " ")
  exit !(word[6] != "" && word[6] + 0 <= most + 0) }' || { echo "more than $at_most %"; exit 1; }
