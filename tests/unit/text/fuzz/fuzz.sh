#!/usr/bin/env bash
# Builds the fuzzers of JSONL and of recipes with clang's libFuzzer and runs them; fails on a finding.
#   fuzz.sh NAME CLANGXX SOURCE_DIR GENERATED_INCLUDE_DIR WORK [SECONDS]      NAME: jsonl or recipe
set -euo pipefail
name=$1 clang=$2 source=$3 generated=$4 work=$5 seconds=${6:-${FUZZ_SECONDS:-600}}
mkdir -p "$work/corpus"
flags=(-std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -DTOML_HEADER_ONLY=0 -DTOML_SHARED_LIB=1
  -I"$source/app" -I"$source/core/include" -I"$source/core/src" -I"$generated")
sources=("$source/tests/unit/text/fuzz/fuzz_$name.cpp" "$source"/core/src/base/error.cpp)
case $name in
  jsonl)
    for file in byte_source documents json_text line_reader pieces utf8; do sources+=("$source/app/text/$file.cpp"); done
    libraries=(-lz -lzstd)
    printf '\0\0{"text":"a\\u00e9","lang":"fr","x":[1,2.5e3,null,true,{"y":"z"}]}' >"$work/corpus/line"
    printf '\1\5{"text":"a"}\n\n{"text":5}\r\nnope\n' >"$work/corpus/lines"
    printf '\2\7one\ntwo\n\n \nthree\n' >"$work/corpus/paragraphs"
    { printf '\1\7'; printf '{"text":"a"}\n' | gzip -n; } >"$work/corpus/gzip"
    words='"\"text\":" "\"lang\":" "\\u" "\\ud800" "\\udc00" "\x0a" "\x0a\x0a" "null" "{\"text\":\"a\"}\x0a"'
    ;;
  recipe)
    for file in "$source"/app/config/*.cpp; do
      case $file in */open.cpp | */open_world.cpp) ;; *) sources+=("$file") ;; esac
    done
    for file in config_check config_default config_value config_view interfaces shape; do
      sources+=("$source/core/src/base/$file.cpp")
    done
    sources+=("$source/core/src/device/memory.cpp")  # of Device, whose virtual functions interfaces.cpp names
    sources+=("$source"/app/train/{batch,rate}_schedule.cpp "$source/app/model/parameters.cpp")
    sources+=("$source"/app/text/{completions_dataset,json_text,utf8}.cpp)  # for the options of a built-in dataset
    libraries=(-lfmt -ltomlplusplus)
    for file in quickstart bloom-176b ablation/bf16; do
      { printf '\0'; grep -v '^include' "$source/configs/$file.toml"; } >"$work/corpus/$(basename $file)"
    done
    printf '\1train.lr=1e-4' >"$work/corpus/set"
    printf '\1data.train=[{ path = "a", weight = 1 }]' >"$work/corpus/set_list"
    words='"model." "train." "optimizer." "parallel.data." "[data]" "plugin = \"" "lr = " "1e-4" "= [" "{ path = \"a\" }" "true" "-1" "9223372036854775808"'
    ;;
  *)
    echo "fuzz.sh: unknown fuzzer '$name' (known: jsonl, recipe)" >&2
    exit 2
    ;;
esac
objects=()
for file in "${sources[@]}"; do
  object=$work/$(basename "$file" .cpp).o
  "$clang" "${flags[@]}" -c "$file" -o "$object"  # always: a header may have changed
  objects+=("$object")
done
"$clang" "${flags[@]}" "${objects[@]}" "${libraries[@]}" -o "$work/fuzz_$name"
grep -oE '"(\\.|[^"\\])*"' <<<"$words" >"$work/words"
UBSAN_OPTIONS=print_stacktrace=1 "$work/fuzz_$name" -max_total_time="$seconds" -max_len=6000 -timeout=20 -rss_limit_mb=2000 \
  -dict="$work/words" -artifact_prefix="$work/finding-" -print_final_stats=1 "$work/corpus"
