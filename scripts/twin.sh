#!/usr/bin/env bash
# Trains BLOOM-176B's run in small (configs/bloom-twin.toml: tensor 2 x pipeline 3 x data 2) on 12 ranks of this machine, however few
# cores it has, and the same recipe on one rank; prints what each stage holds and both loss curves, and fails where they part.
#   scripts/twin.sh
#   scripts/twin.sh --set parallel.pipeline.schedule=zero_bubble --set model.hidden=128
# --set goes to the trainer, for both. In BF16 the ranks round partial sums that one rank does not have: the curves may lie 0.002 apart.
# In FP32, ten steps agree to 1e-5 of the loss.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build
sets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --set)
      [ $# -ge 2 ] || { echo "twin.sh: --set needs KEY=VALUE" >&2; exit 2; }
      sets+=(--set "$2")
      shift 2
      ;;
    --build)
      [ $# -ge 2 ] || { echo "twin.sh: --build needs a folder" >&2; exit 2; }
      build=$2
      shift 2
      ;;
    -h | --help)
      sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "twin.sh: unknown argument '$1' (known: --set KEY=VALUE, --build DIR, --help)" >&2
      exit 2
      ;;
  esac
done

recipe=configs/bloom-twin.toml
trainer=$build/app/trainer
[ -x "$trainer" ] || { echo "twin.sh: $trainer is not built: cmake --build $build" >&2; exit 2; }
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$trainer" config check --world 12 "$recipe" "${sets[@]}"

# train NAME RANKS ARGUMENT...: leaves the losses of its steps in NAME.loss.
train() {
  local name=$1 ranks=$2
  shift 2
  local start=$SECONDS
  if ! "$mpiexec" -n "$ranks" "$trainer" train "$recipe" "${sets[@]}" "$@" --set "run.dir=$folder/$name" >"$folder/$name.out" 2>&1; then
    cat "$folder/$name.out" >&2
    echo "twin.sh: training on $ranks ranks failed" >&2
    exit 1
  fi
  sed -nE 's/.*"kind":"step","step":([0-9]+),.*"lm loss":([^,}]+).*/\1 \2/p' "$folder/$name/metrics.jsonl" >"$folder/$name.loss"
  echo "$name: $(wc -l <"$folder/$name.loss") steps in $((SECONDS - start)) s"
}

# compare A B BOUND KIND: the steps of both, a few of them printed; fails above the bound.
compare() {
  paste -d ' ' "$folder/$1.loss" "$folder/$2.loss" | awk -v bound="$3" -v kind="$4" -v names="$1 $2" '
    BEGIN { printf "%6s  %12s  %12s   (%s)\n", "step", "12 ranks", "one rank", names }
    {
      if (NF != 4 || $1 != $3) { print "twin.sh: the two runs have different steps"; bad = 1; exit 1 }
      if ($2 !~ /^[0-9][0-9.e+-]*$/ || $4 !~ /^[0-9][0-9.e+-]*$/) { print "twin.sh: a loss is no number: " $0; bad = 1; exit 1 }
      gap = $2 > $4 ? $2 - $4 : $4 - $2
      if (kind == "relative") gap /= $4
      if (gap > most) most = gap
      last = sprintf("%6d  %12.6f  %12.6f", $1, $2, $4)
      if (NR == 1 || NR % 5 == 0) { print last; last = "" }
    }
    END {
      if (bad) exit 1
      if (last != "") print last
      printf "largest %s difference %.2e, allowed %.0e\n", kind, most, bound
      if (NR == 0 || !(most <= bound)) exit 1
    }' || { echo "twin.sh: 12 ranks and one rank do not agree" >&2; exit 1; }
}

one=(--set parallel.tensor.size=1 --set parallel.pipeline.size=1)
fp32=(--set optimizer.plugin=optim_fp32 --set train.train_samples=228 --set eval.at_end=false)
train bf16_12 12
sed -n 's/^memory: ranks/measured on ranks/p' "$folder/bf16_12.out"
train bf16_1 1 "${one[@]}"
compare bf16_12 bf16_1 2e-3 absolute
train fp32_12 12 "${fp32[@]}"
train fp32_1 1 "${fp32[@]}" "${one[@]}"
compare fp32_12 fp32_1 1e-5 relative
echo "twin.sh: ${SECONDS} s in all"
