#!/usr/bin/env bash
# Builds the fuzzer of the tokenizers with clang's libFuzzer and runs it; fails on a finding.
#   fuzz.sh CLANGXX SOURCE_DIR GENERATED_INCLUDE_DIR WORK [SECONDS]
set -euo pipefail
clang=$1 source=$2 generated=$3 work=$4 seconds=${5:-${FUZZ_SECONDS:-600}}
mkdir -p "$work/corpus"
here=$source/tests/unit/text/tokenizers
fixtures=$source/tests/fixtures/model/tokenizer
flags=(-std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -I"$source/app" -I"$source/core/include" -I"$generated")
sources=("$here/fuzz_tokenizer.cpp" "$source/app/text/utf8.cpp" "$source/core/src/base/error.cpp" "$source/core/src/base/interfaces.cpp"
  "$source/core/src/device/memory.cpp")
for name in added_tokens bpe byte_symbols content huggingface_tokenizer normalizer pattern pretokenizer tokenizer_file translate_pattern \
  unicode_classes word_cache; do
  sources+=("$source/app/text/tokenizers/$name.cpp")
done
objects=()
for file in "${sources[@]}"; do
  object=$work/$(basename "$file" .cpp).o
  [ "$object" -nt "$file" ] || "$clang" "${flags[@]}" -c "$file" -o "$object"
  objects+=("$object")
done
"$clang" "${flags[@]}" "${objects[@]}" -lfmt -lpcre2-8 -lutf8proc -lxxhash -o "$work/fuzz_tokenizer"

# Seeds: one of each kind, so that mutation starts from what is read.
printf '\0%s' "$(head -c 4000 "$fixtures/bloom_tokenizer.json")" >"$work/corpus/file"
printf '\1{"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"NFKD"}]}}\xffe\xcc\x81 x' >"$work/corpus/normalizer"
printf '\1{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\\\s+|\\\\p{N}{1,3}"},"behavior":"MergedWithNext","invert":true},{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":true,"use_regex":true}]}}\xffa 12 b' >"$work/corpus/steps"
printf '\1{"added_tokens":[{"id":0,"content":"<unk>","special":true},{"id":68,"content":"a","single_word":true,"lstrip":true},{"id":1000,"content":"  ","rstrip":true,"normalized":true}]}\xffa  a' >"$work/corpus/added"
printf '\2 ?[^(\\s|[.,!?\xe2\x80\xa6])]+|(?i:x)\\d{2,3}\xffab (12) .' >"$work/corpus/pattern"
printf '\3Hello w\xc3\xb6rld </s>  \xe6\x97\xa5 1234 ~~~~~~~~ \xff\xfe' >"$work/corpus/text"
cat >"$work/words" <<'WORDS'
"\"type\":"
"\"ByteLevel\""
"\"Split\""
"\"Digits\""
"\"Sequence\""
"\"added_tokens\":"
"\"content\":"
"\"model\":"
"\"merges\":"
"\"vocab\":"
"\\p{L}"
"\\s"
"(?:"
"(?!"
"[^"
"{1,3}"
"<s>"
"\xc4\xa0"
WORDS
FUZZ_TOKENIZER=$fixtures/bloom_tokenizer.json UBSAN_OPTIONS=print_stacktrace=1 \
  "$work/fuzz_tokenizer" -max_total_time="$seconds" -max_len=6000 -timeout=20 -rss_limit_mb=3000 -dict="$work/words" \
  -artifact_prefix="$work/finding-" -print_final_stats=1 "$work/corpus"
