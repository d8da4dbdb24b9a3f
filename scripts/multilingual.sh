#!/usr/bin/env bash
# A multilingual run from nothing: the corpus of scripts/corpus.sh, a byte-level BPE vocabulary learned on it, tokens of each language, training
# with configs/multilingual.toml on two MPI ranks, the loss of each language at its end. May be stopped at any time (Ctrl-C) and run again.
#   scripts/multilingual.sh
#   scripts/multilingual.sh --all                                  # 115 natural languages: others stand in for those of BLOOM that lack text
#   scripts/multilingual.sh --set train.train_samples=2000
# --set goes to the trainer. Needs the build of scripts/quickstart.sh or scripts/test.sh in build/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

recipe=configs/multilingual.toml work=work/multilingual
sets=() all=()
while [ $# -gt 0 ]; do
  case "$1" in
    --set)
      [ $# -ge 2 ] || { echo "multilingual.sh: --set needs KEY=VALUE" >&2; exit 2; }
      sets+=(--set "$2")
      shift 2
      ;;
    --all)
      all=(--all)
      shift
      ;;
    -h | --help)
      sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "multilingual.sh: unknown argument '$1' (known: --all, --set KEY=VALUE, --help)" >&2
      exit 2
      ;;
  esac
done
trainer=${TRAINER:-build/app/trainer}
[ -x "$trainer" ] || { echo "multilingual.sh: $trainer is not there; build it first (scripts/quickstart.sh does)" >&2; exit 1; }

echo "== 1/4 corpus"
bash scripts/corpus.sh --out work/corpus "${all[@]}"
mapfile -t languages < <(tail -n +2 work/corpus/manifest.tsv | cut -f1)

echo "== 2/4 vocabulary"
if [ ! -f "$work/tokenizer.json" ]; then
  inputs=()
  for language in "${languages[@]}"; do inputs+=(--input "work/corpus/train/$language.jsonl"); done
  "$trainer" tokenizer train "${inputs[@]}" --vocab-size 8192 --output "$work/tokenizer.json"
fi

echo "== 3/4 tokens"
for part in train valid; do
  if [ -f "$work/tokens/$part/done" ] && [ "$work/tokens/$part/done" -nt "$work/tokenizer.json" ]; then continue; fi
  inputs=()
  for language in "${languages[@]}"; do inputs+=(--input "work/corpus/$part/$language.jsonl"); done
  "$trainer" preprocess "${inputs[@]}" --language-from-name --tokenizer "$work/tokenizer.json" --output "$work/tokens/$part/{language}"
  touch "$work/tokens/$part/done"
done
# A machine whose package archive lacks some texts has fewer languages than the recipe names: then the blend is that of the corpus.
in_recipe() { sed -nE 's/.*path = "work\/multilingual\/tokens\/train\/([^"]+)".*/\1/p' "$recipe" | sort; }
if [ "$(in_recipe)" != "$(printf '%s\n' "${languages[@]}" | sort)" ]; then
  echo "the corpus has other languages than $recipe: taking the blend of the corpus"
  blend=$(bash scripts/corpus.sh --out work/corpus --toml --prefix "$work/tokens/")
  array_of() { sed -n "/^$1 = \[/,/^\]/p" <<<"$blend" | sed "1s/^$1 = //" | tr '\n' ' '; }
  sets=(--set "data.train=$(array_of train)" --set "data.valid=$(array_of valid)" "${sets[@]}")
fi

echo "== 4/4 training"
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)
exec "$mpiexec" -n 2 "$trainer" train "$recipe" "${sets[@]}"
