#!/usr/bin/env bash
# Builds the fuzzer of .safetensors headers with clang's libFuzzer and runs it; fails on a finding.
#   fuzz.sh CLANGXX SOURCE_DIR GENERATED_INCLUDE_DIR WORK [SECONDS]
set -euo pipefail
clang=$1 source=$2 generated=$3 work=$4 seconds=${5:-${FUZZ_SECONDS:-600}}
mkdir -p "$work/corpus"
flags=(-std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I"$source/app" -I"$source/core/include" -I"$generated")
"$clang" "${flags[@]}" "$source/tests/unit/model/fuzz_safetensors.cpp" "$source/app/interop/safetensors.cpp" \
  "$source/core/src/base/error.cpp" -lfmt -o "$work/fuzz_safetensors"

# Seeds: one of each kind, so that mutation starts from what is read.
{
  printf '\0'
  head -c 3500 "$source/tests/fixtures/model/tiny_gpt2/hf/model.safetensors"
} >"$work/corpus/file"
printf '\x19{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' >"$work/corpus/header"
printf '\x02"b":{"dtype":"BF16","shape":[1,0],"data_offsets":[8,8]},"__metadata__":{"format":"pt"}' >"$work/corpus/inside"
printf '\x0e"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]}' >"$work/corpus/two"
cat >"$work/words" <<'WORDS'
"\"dtype\":"
"\"shape\":"
"\"data_offsets\":"
"\"__metadata__\":"
"\"F32\""
"\"BF16\""
"\"F16\""
"\"I64\""
"\"U8\""
"[0,8]"
"[8,12]"
"18446744073709551615"
"9223372036854775807"
"-1"
"1e3"
WORDS
UBSAN_OPTIONS=print_stacktrace=1 "$work/fuzz_safetensors" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=3000 \
  -dict="$work/words" -artifact_prefix="$work/finding-" -print_final_stats=1 "$work/corpus"
