#!/usr/bin/env bash
# Everything about the CUDA backend that needs a GPU, on one GPU and in at most ten minutes: parity of the kernels with FP64 and of a training
# run with the CPU, bandwidth of each kernel as a share of a measured copy, GEMMs as a share of a measured peak, offload and overlap timed,
# where a step's time goes, 20 steps of bloom-560m and bloom-1b7. Leaves report.md and report.json, and each part's log, in one folder.
# Attention of cuDNN is part of it where the build has it (ESPALIER_CUDNN_FRONTEND, plugins/kernels_fused/cuda/README.md).
#   scripts/gpu_check.sh [--build DIR] [--out DIR] [--minutes 10] [--tiny] [--dry-run]
# --build DIR  a build made elsewhere (cmake -DESPALIER_CUDA=ON); without it build-gpu is made, of what is needed only.
# --out DIR    for the results (gpu_check): a new or empty folder, or one of an earlier check, whose results go
# --minutes N  counted from the end of the build; what is not begun by then is left out, and the report says so
# --tiny       small shapes: to try the script itself, on emulated CUDA (ESPALIER_PLUGIN_PATH) or on a small GPU; its times mean nothing
# --dry-run    stops at the first call of the device: build, programs, plugins and recipes are checked
# Exit code: 0 all passed, 1 something failed, 3 there is no device; 130 stopped by a signal, with a report of what was done by then.
set -uo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

build='' out=gpu_check minutes=10 tiny=false dry=false
while [ $# -gt 0 ]; do
  case "$1" in
    --build | --out | --minutes)
      [ $# -ge 2 ] || { echo "gpu_check.sh: $1 needs a value" >&2; exit 2; }
      case "$1" in
        --build) build=$2 ;;
        --out) out=$2 ;;
        --minutes) minutes=$2 ;;
      esac
      shift 2
      ;;
    --tiny) tiny=true; shift ;;
    --dry-run) dry=true; shift ;;
    -h | --help)
      sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "gpu_check.sh: unknown argument '$1' (known: --build DIR, --out DIR, --minutes N, --tiny, --dry-run)" >&2
      exit 2
      ;;
  esac
done
case $minutes in '' | *[!0-9]*) echo "gpu_check.sh: --minutes takes a whole number, found '$minutes'" >&2; exit 2 ;; esac

say() { printf '\n== %s (%d:%02d min)\n' "$1" $((SECONDS / 60)) $((SECONDS % 60)); }

if [ -z "$build" ]; then
  build=$source_dir/build-gpu
  say "build"
  if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then export CUDACXX=${CUDACXX:-/usr/local/cuda/bin/nvcc}; fi
  # The compilers of this machine may warn of what those of the developers do not.
  if ! cmake -S "$source_dir" -B "$build" -G Ninja -DESPALIER_CUDA=ON -DESPALIER_WERROR=OFF \
    ${ESPALIER_CUDNN_FRONTEND:+"-DESPALIER_CUDNN_FRONTEND=$ESPALIER_CUDNN_FRONTEND"} ||
    ! cmake --build "$build" --target trainer device_bench gpu_suite kernels_fused kernels_fused_cuda optim_bf16 parallel_zero; then
    echo "gpu_check.sh: the build failed" >&2
    exit 1
  fi
fi
trainer=$build/app/trainer bench=$build/bench/device_bench suite=$build/tests/gpu/gpu_suite
for program in "$trainer" "$bench"; do
  [ -x "$program" ] || { echo "gpu_check.sh: $program is not there: build it with -DESPALIER_CUDA=ON" >&2; exit 1; }
done
SECONDS=0
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
if [ -n "$(ls -A "$out")" ] && ! [ -e "$out/.gpu_check" ]; then
  echo "gpu_check.sh: $out holds something else: name a new folder with --out" >&2
  exit 2
fi
touch "$out/.gpu_check" || { echo "gpu_check.sh: $out cannot be written: name another folder with --out" >&2; exit 1; }
rm -f "$out"/*.log "$out"/*.toml "$out"/report.* "$out"/*.json
rm -rf "$out"/runs

failed=0
rows=()    # of report.md
fields=()  # of report.json
# note NAME VERDICT TEXT: one line of both reports.
note() {
  printf '%-28s %-8s %s\n' "$1" "$2" "$3"
  rows+=("| $1 | $2 | $3 |")
  local text=${3//[[:cntrl:]]/ }
  text=${text//\\/\\\\}
  fields+=("  {\"part\": \"$1\", \"verdict\": \"$2\", \"text\": \"${text//\"/\\\"}\"}")
  [ "$2" != failed ] || failed=1
}
late() { [ "$SECONDS" -ge $((minutes * 60)) ]; }
# limit SECONDS: what of them the whole still allows.
limit() { local left=$((minutes * 60 - SECONDS)); [ "$left" -lt "$1" ] && echo $((left > 1 ? left : 1)) || echo "$1"; }
# run SECONDS COMMAND...: with a limit, and so that a signal to this script ends it, too.
child=''
run() {
  timeout --kill-after=10 "$@" &
  child=$!
  wait "$child"
  local code=$?
  child=''
  case $code in 124 | 137) echo "stopped after $1 s" ;; esac
  return "$code"
}
reason() { grep -v '^ *$' "$1" | tail -n 1 | tr -d '|' | cut -c 1-300; }

# recipe NAME DEVICE LAYERS HIDDEN HEADS VOCAB SEQ MICRO STEPS [LINES...]: a recipe in $out on synthetic text.
recipe() {
  local name=$1 device=$2 layers=$3 hidden=$4 heads=$5 vocab=$6 seq=$7 micro=$8 steps=$9
  shift 9
  {
    printf '[run]\ndir = "%s/runs/%s"\n' "$out" "$name"
    printf '[model]\nlayers = %d\nhidden = %d\nheads = %d\nvocab_size = %d\nseq_length = %d\n' "$layers" "$hidden" "$heads" "$vocab" "$seq"
    printf '[train]\nseed = 1\ntrain_iters = %d\nmicro_batch_size = %d\nglobal_batch_size = %d\nlr = 1e-4\nlr_decay_style = "constant"\nclip_grad = 1.0\n' \
      "$steps" "$micro" "$micro"
    printf '[optimizer]\nplugin = "optim_bf16"\n[backend]\nplugin = "kernels_fused"\ndevice = "%s"\n' "$device"
    printf '[data]\nplugin = "synthetic"\n[log]\ninterval = 1\n'
    printf '[checkpoint]\nsave_interval = -1\n'  # those of the large models would take 50 GB and minutes
    printf '%s\n' "$@"
  } >"$out/$name.toml"
}
# values NAME METRIC: of every step of a run.
values() { grep -o "\"$2\":[-0-9.e+]*" "$out/runs/$1/metrics.jsonl" | sed 's/.*://'; }
median_after() { tail -n +"$1" | sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }

if $tiny; then
  parity_steps=3 size_560m=(2 32 4 512 32 2) size_1b7=(2 64 4 512 32 2) size_176b=(1 64 4 512 32 2) bench_arguments=(--tokens=32 --copy-bytes=65536 --peak=32 --seconds=0) steps=3
else
  parity_steps=20 size_560m=(24 1024 16 250880 2048 8) size_1b7=(24 2048 16 250880 2048 4) size_176b=(1 14336 112 250880 2048 2) bench_arguments=() steps=20
fi
recipe parity_cpu cpu 2 64 4 512 64 2 $parity_steps
recipe parity_cuda cuda 2 64 4 512 64 2 $parity_steps
recipe parity_synchronous cuda 2 64 4 512 64 2 $parity_steps
sed -i 's/^device = "cuda"$/&\nsynchronous = true/' "$out/parity_synchronous.toml"
recipe parity_nccl cuda 2 64 4 512 64 2 $parity_steps
sed -i 's/^device = "cuda"$/&\nnccl = "always"/' "$out/parity_nccl.toml"
recipe parity_graphs cuda 2 64 4 512 64 2 $parity_steps
recipe parity_own_attention cuda 2 64 4 512 64 2 $parity_steps
recipe offload cuda 2 64 4 512 64 2 $parity_steps '[parallel.data]' 'plugin = "parallel_zero"' 'stage = 1' 'offload_optimizer = "cpu"'
recipe bloom_560m cuda "${size_560m[@]}" $steps
recipe bloom_560m_offload cuda "${size_560m[@]}" $steps '[parallel.data]' 'plugin = "parallel_zero"' 'stage = 1' 'offload_optimizer = "cpu"'
recipe bloom_560m_graphs cuda "${size_560m[@]}" $steps
recipe bloom_560m_own_attention cuda "${size_560m[@]}" $steps
recipe parity_epilogues cuda 2 64 4 512 64 2 $parity_steps
recipe bloom_560m_epilogues cuda "${size_560m[@]}" $steps
recipe bloom_560m_timed cuda "${size_560m[@]}" $steps
recipe bloom_1b7 cuda "${size_1b7[@]}" $steps
recipe bloom_176b_layer cuda "${size_176b[@]}" $steps
sed -i 's/^device = "cuda"$/&\ngraphs = true/' "$out/parity_graphs.toml" "$out/bloom_560m_graphs.toml"
sed -i 's/^device = "cuda"$/&\nattention = "own"/' "$out/parity_own_attention.toml" "$out/bloom_560m_own_attention.toml"
sed -i 's/^device = "cuda"$/&\nepilogues = false/' "$out/parity_epilogues.toml" "$out/bloom_560m_epilogues.toml"
sed -i 's/^device = "cuda"$/&\nplans = "timed"/' "$out/bloom_560m_timed.toml"

shapes_of() { case $1 in kernels) echo bloom-560m ;; kernels_1b7) echo bloom-1b7 ;; *) echo "a layer of bloom (176 B)" ;; esac; }
# report: both files; ends the script.
report() {
  {
    printf '# GPU check, %s\n\n' "$(date -u +%Y-%m-%dT%H:%MZ)"
    printf '%s\n\n' "$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>/dev/null || echo 'no nvidia-smi')"
    grep -m1 '^backend:\|kernels_fused_cuda' "$out/kernels.log" 2>/dev/null
    printf '\n| part | verdict | |\n| --- | --- | --- |\n'
    printf '%s\n' "${rows[@]}"
    local log
    for log in kernels kernels_1b7 kernels_176b; do
      [ -s "$out/$log.log" ] || continue
      printf '\n## Kernels, at the shapes of %s\n\n| kernel | time | rate | share |\n| --- | ---: | ---: | ---: |\n' "$(shapes_of $log)"
      grep '^|' "$out/$log.log"
    done
    if [ -s "$out/step.log" ]; then
      printf '\n## Where a step of bloom-560m spends its time\n\n'
      sed -n '/^A step of/,$p' "$out/step.log"
    fi
  } >"$out/report.md"
  {
    printf '{"date": "%s", "tiny": %s, "seconds": %d,\n "parts": [\n' "$(date -u +%FT%TZ)" $tiny "$SECONDS"
    local i
    for i in "${!fields[@]}"; do
      printf '%s%s\n' "${fields[i]}" "$([ "$i" -lt $((${#fields[@]} - 1)) ] && echo ,)"
    done
    printf ' ]'
    for log in kernels kernels_1b7 kernels_176b step; do
      printf ',\n "%s": ' $log
      if [ -s "$out/$log.json" ]; then cat "$out/$log.json"; else echo null; fi
    done
    printf '}\n'
  } >"$out/report.json"
  printf '\ngpu_check.sh: %s/report.md, report.json\n' "$out" >&3
  exit "$1"
}
# shellcheck disable=SC2317  # called by the trap
stop() {
  trap '' INT TERM HUP
  exec 1>&3
  [ -z "$child" ] || { kill "$child" && wait "$child"; } 2>/dev/null
  note "stopped" failed "by a signal"
  report 130
}
exec 3>&1
trap stop INT TERM HUP

say "recipes and plugins"
# The first use of the libraries: they are large, and may come from a slow disk.
run 180 "$trainer" doctor >"$out/doctor.log" 2>&1
for file in "$out"/*.toml; do
  run 60 "$trainer" config check "$file" >"$out/check.log" 2>&1 || { cat "$out/check.log" >&2; echo "gpu_check.sh: $file is refused" >&2; exit 1; }
done
note "recipes" passed "$(find "$out" -name '*.toml' | wc -l) recipes are accepted"

say "first call of the device"
if ! run "$(limit 120)" "$trainer" train "$out/parity_cuda.toml" >"$out/parity_cuda.log" 2>&1; then
  why=$(reason "$out/parity_cuda.log")
  if grep -qi 'no CUDA device' "$out/parity_cuda.log"; then
    note "device" "none" "$why"
    $dry && { echo "dry run: everything is there but the device"; report 0; }
    report 3
  fi
  note "first run" failed "$why"
  report 1
fi
note "first run" passed "$parity_steps steps of a small model"
$dry && { echo "dry run: there is a device; run without --dry-run"; report 0; }

say "parity of a training run"
# near NAME RUN: RUN's losses are those of parity_cuda within BF16's rounding: two providers round at other places, and that is carried through
# the steps.
near() {
  if ! run "$(limit 60)" "$trainer" train "$out/$2.toml" >"$out/$2.log" 2>&1; then
    note "$1" failed "$(reason "$out/$2.log")"
    return
  fi
  local worst
  worst=$(paste <(values "$2" "lm loss") <(values parity_cuda "lm loss") |
    awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > m) m = d; n++ } END { if (n) printf "%.2e", m }')
  if awk -v w="${worst:-1}" 'BEGIN { exit !(w < 2e-3) }'; then
    note "$1" passed "losses of $parity_steps steps differ by at most $worst, relative (2e-3 allowed)"
  else
    note "$1" failed "losses differ by ${worst:-nothing to compare}, relative (2e-3 allowed)"
  fi
}
# attention_of RUN: which way its attention went, as the log has it.
attention_of() { grep -o 'attention: .*' "$out/$1.log" | sort -u | paste -sd ';' | tr -d '|' | cut -c 1-300; }
near "training, CPU and CUDA" parity_cpu
near "attention, auto and own" parity_own_attention
note "attention of auto" said "$(attention_of parity_cuda)"
# products_of RUN: what cuBLASLt does not do in one pass, and how algorithms were chosen, as the log has it.
products_of() { grep -o 'matmul .*: own kernel\|algorithms of .*' "$out/$1.log" | sort -u | paste -sd ';' | tr -d '|' | cut -c 1-600; }
near "products, with epilogues and by kernels" parity_epilogues
note "products" said "$(products_of parity_cuda)"

# same NAME RUN: RUN gives the losses of parity_cuda to the digit.
same() {
  if ! run "$(limit 60)" "$trainer" train "$out/$2.toml" >"$out/$2.log" 2>&1; then
    note "$1" failed "$(reason "$out/$2.log")"
  elif [ "$(values "$2" "lm loss")" = "$(values parity_cuda "lm loss")" ]; then
    note "$1" passed "the same losses to the digit"
  else
    note "$1" failed "other losses than without"
  fi
}
same "waiting after each launch" parity_synchronous
same "offloaded optimizer state" offload
same "NCCL with one rank" parity_nccl
same "CUDA graphs" parity_graphs
made=$(grep -o 'graphs: .*' "$out/parity_graphs.log" | tail -n 1 | tr -d '|' | cut -c 1-300)
note "graphs" "$([ -n "$made" ] && echo said || echo failed)" "${made:-none in $parity_steps steps}"

if [ -x "$suite" ] && ! late; then
  say "parity of the kernels with FP64"
  if run "$(limit 240)" "$suite" --gtest_brief=1 >"$out/suite.log" 2>&1; then
    if grep -q 'no CUDA device' "$out/suite.log"; then
      note "kernels against FP64" "left out" "$(reason <(grep 'no CUDA device' "$out/suite.log"))"
    else
      note "kernels against FP64" passed "$(grep -o '[0-9]* tests\? from.*ran' "$out/suite.log" | tail -n 1)"
      note "attention in them" said "own everywhere; $(attention_of suite)"
    fi
  else
    wrong=$(grep -m1 -h 'FAILED\|Error' "$out/suite.log" | tr -d '|' | cut -c 1-200)
    note "kernels against FP64" failed "${wrong:-$(reason "$out/suite.log")}"
  fi
else
  note "kernels against FP64" "left out" "$([ -x "$suite" ] && echo "no time left" || echo "$suite is not built")"
fi

# kernels NAME LOG RECIPE ARGUMENTS...: each kernel's bandwidth as a share of a copy.
kernels() {
  local name=$1 log=$2 recipe=$3 slow
  shift 3
  if late; then note "$name" "left out" "no time left"; return; fi
  say "$name"
  if run "$(limit 150)" "$bench" "$out/$recipe.toml" "${bench_arguments[@]}" "$@" --json="$out/$log.json" >"$out/$log.log" 2>&1; then
    slow=$(awk -F'|' '/% of copy/ && !/\| copy / { s = $5; sub(/%.*/, "", s); if (s + 0 < 80) { gsub(/^ +| +$/, "", $2); list = list (list ? ", " : "") $2 } } END { print list }' "$out/$log.log")
    note "$name" "$([ -z "$slow" ] && echo passed || echo slow)" "${slow:+below 80 % of copy: $slow}"
  else
    note "$name" failed "$(reason "$out/$log.log")"
  fi
}
kernels "kernel speeds" kernels bloom_560m

# speed NAME RUN TOKENS: tokens a second and share of the peak, after the first five steps.
speed() {
  if late; then note "$1" "left out" "no time left"; return; fi
  say "$1"
  if ! run "$(limit 120)" "$trainer" train "$out/$2.toml" >"$out/$2.log" 2>&1; then
    note "$1" failed "$(reason "$out/$2.log")"
    return
  fi
  local from=6 tokens flops
  $tiny && from=2
  tokens=$(values "$2" "tokens per second" | median_after $from)
  flops=$(values "$2" "TFLOP\/s per rank" | median_after $from)
  if [ -z "$tokens" ] || [ -z "$flops" ]; then
    note "$1" failed "no speeds in $out/runs/$2/metrics.jsonl"
    return
  fi
  local measured
  measured=$(grep -o '"peak_tflop_per_s": *[0-9.e+-]*' "$out/kernels.json" 2>/dev/null | sed 's/.*: *//')
  note "$1" passed "$(awk -v t="$tokens" -v f="$flops" -v p="${measured:-0}" 'BEGIN {
    printf "%.0f tokens/s, %.1f model TFLOP/s: %.1f %% of 989 (H100 and H200, dense BF16)", t, f, f / 9.89
    if (p > 0) printf ", %.1f %% of the measured %.0f", 100 * f / p, p }')"
}
speed "bloom-560m" bloom_560m
[ ! -s "$out/bloom_560m.log" ] || note "attention of bloom-560m" said "$(attention_of bloom_560m)"
speed "bloom-560m, CUDA graphs" bloom_560m_graphs
if late; then
  note "where a step's time goes" "left out" "no time left"
else
  say "where a step's time goes"
  if run "$(limit 90)" "$bench" "$out/bloom_560m.toml" "${bench_arguments[@]}" --only=step --json="$out/step.json" >"$out/step.log" 2>&1; then
    note "where a step's time goes" said "$(grep -h '^step, modelled' "$out/step.log" | tr -s ' '); $(grep -h '^step, measured' "$out/step.log" | tr -s ' ')"
  else
    note "where a step's time goes" failed "$(reason "$out/step.log")"
  fi
fi
speed "bloom-560m, offloaded" bloom_560m_offload
speed "bloom-1b7" bloom_1b7
speed "bloom-560m, own attention" bloom_560m_own_attention
speed "bloom-560m, kernels in place of epilogues" bloom_560m_epilogues
speed "bloom-560m, timed algorithms" bloom_560m_timed
[ ! -s "$out/bloom_560m_timed.log" ] || note "algorithms of bloom-560m, timed" said "$(products_of bloom_560m_timed)"
kernels "kernel speeds, bloom-1b7" kernels_1b7 bloom_1b7 --only=memory
$tiny || bench_arguments=(--tokens=4096)
kernels "kernel speeds, 176b layer" kernels_176b bloom_176b_layer --only=memory
report "$failed"
