#!/usr/bin/env bash
# The core is what a plugin author has to read and what every plugin links: headers and sources stay below 6,000 lines.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
limit=6000
lines=$(find core -name '*.hpp' -print0 -o -name '*.cpp' -print0 | xargs -0 cat | wc -l)
echo "core: $lines lines of headers and sources, limit $limit"
[ "$lines" -lt "$limit" ]
