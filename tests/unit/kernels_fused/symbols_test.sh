#!/usr/bin/env bash
# Objects compiled for an instruction set must not define functions that other objects may share by name (weak, unique): the linker
# keeps one of them, and the one with AVX-512 in it would run on machines without. DW.ref.* is data of the C++ runtime.
#   symbols_test.sh NM NAMESPACE OBJECT[:OBJECT...]
set -euo pipefail
nm=$1 namespace=$2
IFS=: read -ra objects <<<"$3"
failed=0
defined=0
for object in "${objects[@]}"; do
  symbols=$("$nm" -C --defined-only "$object")
  if shared=$(grep -E '^[0-9a-f]+ [WVuwv] ' <<<"$symbols" | grep -vF -e "$namespace" -e " DW.ref."); then
    echo "$object shares with other objects:"
    echo "$shared"
    failed=1
  fi
  if grep -qF "$namespace" <<<"$symbols"; then defined=$((defined + 1)); fi
done
echo "${#objects[@]} objects, $defined of them define something in $namespace"
[ "$defined" -gt 0 ] && [ "$defined" -eq "${#objects[@]}" ] && [ "$failed" -eq 0 ]
