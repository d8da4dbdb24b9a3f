#!/usr/bin/env bash
# Builds a multilingual training corpus from Debian packages: natural languages and source code, one file a language.
# Nothing is installed and nothing but the package manager is asked. See --help, and scripts/corpus/ for the program and its tables.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

if ! command -v python3 >/dev/null; then
  echo "corpus: error: python3 was not found; run scripts/install-deps.sh" >&2
  exit 1
fi
if ! command -v dpkg-deb >/dev/null; then
  echo "corpus: error: dpkg-deb was not found; the corpus comes from Debian packages and needs a Debian or Ubuntu machine" >&2
  exit 1
fi
PYTHONDONTWRITEBYTECODE=1 exec python3 "$here/corpus/build.py" "$@"
