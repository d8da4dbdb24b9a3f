#!/usr/bin/env bash
# Limits of size. The core is what a plugin author reads and what every plugin links: headers and sources stay below 6,000 lines,
# blank ones not counted (docs/decisions/0001-what-core-holds.md).
# A C++ file above 600 lines has a second topic in it.
#   scripts/check-sizes.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
core_limit=6000
file_limit=600
failed=0

core_lines=$(find core \( -name '*.hpp' -o -name '*.cpp' \) -exec cat {} + | grep -c '[^[:space:]]')
echo "core: $core_lines lines of headers and sources, blank ones left out (limit: below $core_limit)"
if [ "$core_lines" -ge "$core_limit" ]; then
  echo "core is too long: move what is not interface, plugin host, communicator or oracle out of it"
  failed=1
fi

folders=()
for folder in core testing app plugins tests bench examples; do
  [ ! -d "$folder" ] || folders+=("$folder")
done
while read -r lines file; do
  if [ "$lines" -gt "$file_limit" ]; then
    echo "$file: $lines lines (limit: $file_limit): give its second topic a file of its own"
    failed=1
  fi
done < <(find "${folders[@]}" -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -exec sh -c '
  for f; do echo "$(wc -l <"$f") $f"; done' sh {} +)
exit "$failed"
