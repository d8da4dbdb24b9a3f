#!/usr/bin/env bash
# scripts/gpu_check.sh where there is no GPU: its dry run stops at the first call of the device; on emulated CUDA it goes through to the end; a
# run that fails makes the whole fail; a signal ends it with a report.
#   gpu_check_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
script=$1/scripts/gpu_check.sh build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "gpu_check_test.sh: $1" >&2; exit 1; }

if [ -e "$build/lib/espalier/plugins/libkernels_fused_cuda.so" ] && ! [ -e /dev/nvidia0 ]; then
  bash "$script" --build "$build" --out "$folder/dry" --dry-run >"$folder/dry.txt" || fail "the dry run failed: $(cat "$folder/dry.txt")"
  grep -q 'no CUDA device' "$folder/dry/report.md" || fail "the dry run does not name the missing device"
  code=0
  bash "$script" --build "$build" --out "$folder/none" >"$folder/none.txt" || code=$?
  [ $code -eq 3 ] || fail "without a device the code is $code, not 3"
fi

if ! [ -e "$build/tests/cuda_emulation/plugins/libkernels_fused_cuda.so" ]; then
  echo "no emulated CUDA in this build"
  exit 0
fi
export ESPALIER_PLUGIN_PATH=$build/tests/cuda_emulation/plugins
bash "$script" --build "$build" --out "$folder/tiny" --tiny >"$folder/tiny.txt" || fail "$(cat "$folder/tiny.txt")"
for part in 'training, CPU and CUDA' 'attention, auto and own' 'bloom-560m, own attention' 'waiting after each launch' 'offloaded optimizer state' 'NCCL with one rank' 'CUDA graphs' 'bloom-560m' 'bloom-560m, CUDA graphs' 'bloom-1b7' \
  'products, with epilogues and by kernels' 'bloom-560m, kernels in place of epilogues' 'bloom-560m, timed algorithms'; do
  grep -qF "| $part | passed |" "$folder/tiny/report.md" || fail "\"$part\" has not passed: $(cat "$folder/tiny/report.md")"
done
[ -z "$(find "$folder/tiny/runs" -path '*/checkpoints/*')" ] || fail "checkpoints are saved"
grep -qF '| attention of auto | said | attention: own softmax' "$folder/tiny/report.md" || fail "how attention went is not told"
grep -q '| graphs | said | graphs: [0-9]* CUDA graphs of' "$folder/tiny/report.md" || fail "that there were graphs is not told"
grep -q '^| products | said | algorithms of [0-9]* matrix products: the first' "$folder/tiny/report.md" || fail "how products went is not told"
grep -q '^| algorithms of bloom-560m, timed | said |.* in place of ' "$folder/tiny/report.md" || fail "what timed algorithms won is not told"
grep -q 'NCCL .*for groups of one, too' "$folder/tiny/parity_nccl.log" || fail "the run for NCCL does not say that it goes through it"
! grep -qF '| kernels against FP64 | passed |' "$folder/tiny/report.md" || [ -e /dev/nvidia0 ] ||
  fail "the suite for a real GPU says that it passed without one"
python3 - "$folder/tiny/report.json" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
assert len(report["kernels"]["kernels"]) > 40, report
assert all(len(report[shapes]["kernels"]) > 25 for shapes in ("kernels_1b7", "kernels_176b")), report
step = report["step"]["step"]
assert len(step["parts"]) > 30 and all(part["modelled_seconds"] > 0 and part["calls"] > 0 for part in step["parts"]), step
assert all(step[key]["tokens_per_second"] > 0 for key in ("modelled", "alone", "measured")), step
assert any(part["name"] == "update: adamw" and part["measured_seconds"] > 0 for part in step["parts"]), step
assert all(part["verdict"] != "failed" for part in report["parts"]), report
PYTHON

# A trainer whose CUDA runs end differently than its CPU runs.
mkdir -p "$folder/build/app" "$folder/build/bench"
ln -s "$build/bench/device_bench" "$folder/build/bench/"
cat >"$folder/build/app/trainer" <<TRAINER
#!/usr/bin/env bash
case "\$*" in *parity_cpu*) exec "$build/app/trainer" "\$@" --set train.lr=1e-2 ;; esac
exec "$build/app/trainer" "\$@"
TRAINER
chmod +x "$folder/build/app/trainer"
code=0
bash "$script" --build "$folder/build" --out "$folder/wrong" --tiny --minutes 1 >"$folder/wrong.txt" || code=$?
[ $code -eq 1 ] || fail "other losses on the CPU: the code is $code, not 1"
grep -q 'training, CPU and CUDA | failed' "$folder/wrong/report.md" || fail "other losses on the CPU are not seen"
# A folder that holds something else stays as it is.
mkdir "$folder/other"
echo '{}' >"$folder/other/mine.json"
code=0
bash "$script" --build "$folder/build" --out "$folder/other" --tiny >"$folder/other.txt" 2>&1 || code=$?
[ $code -eq 2 ] || fail "a folder of somebody else is taken: the code is $code, not 2"
[ "$(ls -A "$folder/other")" = mine.json ] || fail "a folder of somebody else is changed"

# A signal ends the run that is under way, and what was done is reported.
cat >"$folder/build/app/trainer" <<TRAINER
#!/usr/bin/env bash
[ "\$1" != train ] || { echo \$\$ >"$folder/running"; exec sleep 60; }
TRAINER
bash "$script" --build "$folder/build" --out "$folder/stopped" --tiny >"$folder/stopped.txt" 2>&1 &
for _ in $(seq 300); do [ ! -s "$folder/running" ] || break; sleep 0.1; done
kill -TERM $!
code=0
wait $! || code=$?
[ $code -eq 130 ] || fail "a signal ends it with $code, not 130: $(cat "$folder/stopped.txt")"
! kill -0 "$(cat "$folder/running")" 2>/dev/null || fail "a signal leaves the run behind"
grep -qF '| stopped | failed |' "$folder/stopped/report.md" || fail "a signal leaves no report"

echo "gpu_check.sh: dry run, emulated run, a wrong one and a stopped one end as they should"
