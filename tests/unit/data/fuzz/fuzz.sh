#!/usr/bin/env bash
# Builds the fuzzer of indexed datasets and what lies beside them with clang's libFuzzer and runs it; fails on a finding.
#   fuzz.sh CLANGXX SOURCE_DIR GENERATED_INCLUDE_DIR WORK [SECONDS]
set -euo pipefail
clang=$1 source=$2 generated=$3 work=$4 seconds=${5:-${FUZZ_SECONDS:-600}}
mkdir -p "$work/corpus"
here=$source/tests/unit/data/fuzz
plugin=$source/plugins/data_indexed/src
fixtures=$source/tests/fixtures/data
flags=(-std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -ffp-contract=off -I"$plugin"
  -I"$source/core/include" -I"$generated")
objects=()
for file in "$here/fuzz_index.cpp" "$source"/core/src/base/error.cpp \
  "$plugin"/{array_file,block_check,cache,element_type,fingerprint,index_file,index_writer,large_vector,mapped_file,npy,numpy_random,output_file,path_list,sample_index,sample_reader,splits}.cpp; do
  object=$work/$(basename "$file" .cpp).o
  "$clang" "${flags[@]}" -c "$file" -o "$object"  # always: a header may have changed
  objects+=("$object")
done
"$clang" "${flags[@]}" "${objects[@]}" -o "$work/fuzz_index"

# Seeds: pairs of both writers, whole and damaged, with the width of their tokens; one of each other kind.
for file in "$fixtures"/{indexed,bad,dtype_conflict}/*.idx; do
  [ "$(stat -c %s "$file")" -le 4000 ] || continue
  case $file in *uint8* | *int8*) width='\0' ;; *int32*) width='\2' ;; *int64* | *64.idx) width='\3' ;; *) width='\1' ;; esac
  { printf '\0'; printf "$width"; cat "$file"; } >"$work/corpus/$(basename "$(dirname "$file")")_$(basename "$file")"
done
header="{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }"
{ printf '\1\0\x93NUMPY\1\0v\0'; printf '%-117s\n' "$header"; printf '%024d' 0; } >"$work/corpus/array"
printf '\2\0espalier array check 1\nseed = 3\nbytes = 5\nblocks = 1\n0123456789abcdef\n' >"$work/corpus/check"
printf '\3\0train: 0.3 0:0.95 corpus/en, 0.7 0:0.95 corpus/fr\n"valid_en: 1 0.95:1 corpus/en" "valid_fr: 1 0.95:1 corpus/fr"' >"$work/corpus/lists"
printf '\4\12949,50,1' >"$work/corpus/split"
printf '\4\1390/5/5' >"$work/corpus/split_core"
grep -oE '"(\\.|[^"\\])*"' >"$work/words" <<<'"MMIDIDX\x00\x00" "\x01\x00\x00\x00\x00\x00\x00\x00" "\xff\xff\xff\xff\xff\xff\xff\xff" "\xff\xff\xff\x7f" "<i4" "|u1" "(1,)" "fortran_order" "bytes = " "blocks = " "0.5:1" "nan" "1e308" ",0,"'
# Files in memory: every run writes some.
FUZZ_FOLDER=$(TMPDIR=/dev/shm mktemp -d)
export FUZZ_FOLDER
trap 'rm -rf "$FUZZ_FOLDER"' EXIT
UBSAN_OPTIONS=print_stacktrace=1 "$work/fuzz_index" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2000 \
  -dict="$work/words" -artifact_prefix="$work/finding-" -print_final_stats=1 "$work/corpus"
