#!/usr/bin/env bash
# scripts/corpus.sh on tiny packages, without a network: what is kept and what is not, the same result every time, resuming, and errors.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
corpus="$here/../../scripts/corpus.sh"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
expect() { # expect TEXT FILE
  grep -qF -- "$1" "$2" || { cat "$2" >&2; fail "expected: $1"; }
}

echo "== contents"
python3 "$here/corpus_inputs.py" "$work/in"
"$corpus" --from "$work/in" --out "$work/a" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "the build"; }
expect "no-such-package: no row in sources.tsv" "$work/log"
python3 "$here/corpus_check.py" "$work/a"

echo "== the same result from another folder with another number of processes"
python3 "$here/corpus_inputs.py" "$work/elsewhere"
"$corpus" --from "$work/elsewhere" --out "$work/b" --jobs 1 >/dev/null
for part in train valid manifest.tsv licences.tsv; do
  diff -r "$work/a/$part" "$work/b/$part" >/dev/null || fail "$part differs"
done

echo "== a second run does nothing; a lost file is made again"
"$corpus" --from "$work/in" --out "$work/a" >"$work/log"
expect "nothing to do" "$work/log"
rm "$work/a/valid/fr.jsonl"
"$corpus" --from "$work/in" --out "$work/a" >/dev/null
cmp "$work/a/valid/fr.jsonl" "$work/b/valid/fr.jsonl"

echo "== the blend"
"$corpus" --out "$work/a" --toml --prefix ../tokens/ >"$work/blend.toml"
expect '{ path = "../tokens/train/fr", weight = 0.' "$work/blend.toml"
expect '{ name = "fr", path = "../tokens/valid/fr" }' "$work/blend.toml"

echo "== errors"
mkdir "$work/empty"
if "$corpus" --from "$work/empty" --out "$work/c" >"$work/log" 2>&1; then fail "an empty folder is refused"; fi
expect "no package could be had" "$work/log"
if "$corpus" --out "$work/d" --toml >"$work/log" 2>&1; then fail "--toml without a corpus is refused"; fi
expect "manifest.tsv is not there" "$work/log"

echo "== the package manager: lists that are out of date, a package that fails, a stop in the middle"
mkdir -p "$work/bin" "$work/archive"
for package in libreoffice-help-en-us libreoffice-help-fr python3-docutils; do
  mkdir -p "$work/in/$package/DEBIAN"
  printf 'Package: %s\nVersion: 1:2.0\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: test\n' "$package" \
    >"$work/in/$package/DEBIAN/control"
  dpkg-deb --root-owner-group -b "$work/in/$package" "$work/archive/${package}_1%3a2.0_all.deb" >/dev/null
done
cat >"$work/bin/apt-cache" <<'FAKE'
#!/usr/bin/env bash
[ -e "$FAKE_ROOT/updated" ] || exit 0
for package in "$@"; do
  deb="$FAKE_ROOT/archive/${package}_1%3a2.0_all.deb"
  [ -e "$deb" ] || continue
  printf 'Package: %s\nVersion: 1:2.0\nFilename: x.deb\nSize: %s\n\n' "$package" "$(stat -c %s "$deb")"
done
FAKE
cat >"$work/bin/apt-get" <<'FAKE'
#!/usr/bin/env bash
for word in "$@"; do
  case "$word" in
    update) touch "$FAKE_ROOT/updated"; exit 0 ;;
    python3-docutils) touch "$FAKE_ROOT/started"; [ -e "$FAKE_ROOT/go" ] || exec sleep 60 ;;
    libreoffice-help-fr) echo "E: Failed to fetch libreoffice-help-fr" >&2; exit 100 ;;
  esac
done
for word in "$@"; do
  deb="$FAKE_ROOT/archive/${word}_1%3a2.0_all.deb"
  if [ -e "$deb" ]; then cp "$deb" .; fi
done
FAKE
chmod +x "$work/bin/apt-cache" "$work/bin/apt-get"
export FAKE_ROOT="$work" PATH="$work/bin:$PATH"

"$corpus" --out "$work/e" >"$work/log" 2>&1 &
pid=$!
for _ in $(seq 200); do
  if [ -e "$work/started" ]; then break; fi
  sleep 0.1
done
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 130 ] || { cat "$work/log" >&2; fail "stopped: exit code $code, expected 130"; }
expect "run the same command to go on" "$work/log"

touch "$work/go"
if "$corpus" --out "$work/e" >"$work/log" 2>&1; then fail "a corpus without most of its languages is refused"; fi
expect "manpages: not in this machine's package lists" "$work/log"
expect "libreoffice-help-fr: E: Failed to fetch libreoffice-help-fr" "$work/log"
expect "python3-docutils 1:2.0: 22 files" "$work/log"
expect "error: no text for zh-hans, fr, " "$work/log"
[ ! -e "$work/e/manifest.tsv" ] || fail "a refused corpus has no manifest"
"$corpus" --out "$work/e" >"$work/log" 2>&1 || true
expect "2 packages are extracted already" "$work/log"
echo "corpus: all passed"
