#!/usr/bin/env bash
# From a fresh machine to text written by a model it trained: installs what is needed, builds, makes a multilingual corpus, trains the small
# BLOOM of configs/quickstart.toml on two MPI ranks and lets it continue a few sentences. May be stopped at any time (Ctrl-C) and run again:
# what is finished is not done twice, and training goes on where it was saved.
#   scripts/quickstart.sh
#   scripts/quickstart.sh --set backend.instruction_set=avx2 --set optimizer.plugin=optim_fp16
# --set goes to the trainer. A run whose recipe changed needs another folder: --set run.dir=runs/other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

recipe=configs/quickstart.toml
run=runs/quickstart
sets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --set)
      [ $# -ge 2 ] || { echo "quickstart.sh: --set needs KEY=VALUE" >&2; exit 2; }
      sets+=(--set "$2")
      case "$2" in run.dir=*) run="${2#run.dir=}"; run="${run//\"/}" ;; esac
      shift 2
      ;;
    -h | --help)
      sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "quickstart.sh: unknown argument '$1' (known: --set KEY=VALUE, --help)" >&2
      exit 2
      ;;
  esac
done

stage=none
say() { printf '\n== %s (%d:%02d min)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }
begin() { stage=$1; say "$1"; }
# Bash waits for the stage that the same Ctrl-C reaches: training saves its state first.
trap 'echo; echo "quickstart.sh: stopped in \"$stage\"; the same command goes on from here" >&2; exit 130' INT

begin "1/6 packages"
bash scripts/install-deps.sh

begin "2/6 build"
if [ ! -f build/CMakeCache.txt ]; then
  cmake -S . -B build -G Ninja  # the build that scripts/test.sh continues
fi
cmake --build build --target trainer data_indexed kernels_fused optim_bf16 optim_fp16 optim_fp32 parallel_zero
trainer=build/app/trainer

begin "3/6 corpus"
bash scripts/corpus.sh --out work/corpus

begin "4/6 tokens"
tokens_of() { # PART LANGUAGE
  local text="work/corpus/$1/$2.jsonl" prefix="work/tokens/$1/$2"
  [ "$prefix.idx" -nt "$text" ] && [ -f "$prefix.bin" ] && return
  "$trainer" preprocess --input "$text" --output "$prefix"
}
mapfile -t languages < <(tail -n +2 work/corpus/manifest.tsv | cut -f1)
for language in "${languages[@]}"; do
  tokens_of train "$language"
  tokens_of valid "$language"
done
echo "${#languages[@]} languages in work/tokens"
# A machine whose package archive lacks some texts has fewer languages than the recipe names: then the blend is that of the corpus.
in_recipe() { sed -nE 's/.*path = "work\/tokens\/train\/([^"]+)".*/\1/p' "$recipe" | sort; }
if [ "$(in_recipe)" != "$(printf '%s\n' "${languages[@]}" | sort)" ]; then
  echo "the corpus has other languages than $recipe: taking the blend of the corpus"
  blend=$(bash scripts/corpus.sh --out work/corpus --toml --prefix work/tokens/)
  array_of() { sed -n "/^$1 = \[/,/^\]/p" <<<"$blend" | sed "1s/^$1 = //" | tr '\n' ' '; }
  sets=(--set "data.train=$(array_of train)" --set "data.valid=$(array_of valid)" "${sets[@]}")
fi

begin "5/6 training"
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)
code=0
"$mpiexec" -n 2 "$trainer" train "$recipe" "${sets[@]}" || code=$?
if [ "$code" -eq 75 ]; then
  echo "quickstart.sh: stopped, the state is saved; the same command goes on from there" >&2
  exit 75
elif [ "$code" -ne 0 ]; then
  echo "quickstart.sh: training failed (exit code $code); the messages above say why" >&2
  exit "$code"
fi

begin "6/6 generation"
"$trainer" generate --checkpoint "$run" --tokens 160 --temperature 0.7 --seed 1 \
  --prompt "The file " --prompt "Vous pouvez " --prompt "El usuario " --prompt "使用者" --prompt "#include <" --prompt "def "
say "done: $run holds log, metrics and checkpoints"
echo "more text:   $trainer generate --checkpoint $run --prompt \"Open the \""
echo "other text:  $trainer eval --checkpoint $run --data FILE"
