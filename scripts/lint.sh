#!/usr/bin/env bash
# clang-tidy-16 with the checks of .clang-tidy. It needs a configured build folder, for the compile commands; the tests do not run it.
#   scripts/lint.sh                       every source that the build folder compiles (about 5 s each on an idle core)
#   scripts/lint.sh --since COMMIT        those changed since COMMIT, committed or not; for a header, the first source that includes it
#   scripts/lint.sh FILE...               those
#   scripts/lint.sh --build DIR --jobs N  the build folder (build) and the number of processes (one for each core)
# Exits with 0 if nothing was found, 1 if something was, 2 if it could not look.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
  echo "lint.sh: $1" >&2
  exit 2
}

tool=clang-tidy-16
build=build
jobs=$(nproc)
since=
files=()
while [ $# -gt 0 ]; do
  case $1 in
    --build | --jobs | --since)
      [ $# -ge 2 ] || fail "$1 needs a value"
      case $1 in --build) build=$2 ;; --jobs) jobs=$2 ;; *) since=$2 ;; esac
      shift 2
      ;;
    -*) fail "unknown argument '$1' (known: --since COMMIT, --build DIR, --jobs N)" ;;
    *)
      [ -f "$1" ] || fail "no file '$1'"
      files+=("${1#./}")
      shift
      ;;
  esac
done
[ -z "$since" ] || [ ${#files[@]} -eq 0 ] || fail "either --since COMMIT or files, not both"

command -v "$tool" >/dev/null || fail "$tool is not installed (Debian: apt-get install clang-tidy-16); nothing was checked"
database=$build/compile_commands.json
[ -f "$database" ] || fail "no $database: configure first (cmake -S . -B $build -G Ninja)"
# Headers made by the build, without which no source can be read.
cmake --build "$build" --target core/include/espalier/build_id.hpp >/dev/null || fail "core/include/espalier/build_id.hpp could not be made"

mapfile -t compiled < <(sed -nE "s|^ *\"file\": \"$PWD/([^\"]*\.cpp)\".*|\1|p" "$database" | grep -v "^${build#./}/" | sort -u)
[ ${#compiled[@]} -gt 0 ] || fail "$database names no source of this tree"

if [ -n "$since" ]; then
  git rev-parse --quiet --verify "$since^{commit}" >/dev/null || fail "no commit '$since'"
  mapfile -t files < <({
    git diff --name-only --diff-filter=d "$since" -- '*.cpp' '*.hpp'
    git ls-files --others --exclude-standard -- '*.cpp' '*.hpp'
  } | sort -u)
elif [ ${#files[@]} -eq 0 ]; then
  files=("${compiled[@]}")
fi

declare -A is_compiled=()
for file in "${compiled[@]}"; do is_compiled[$file]=yes; done
sources=()
for file in "${files[@]}"; do
  case $file in
    *.hpp)
      name=${file##*/}
      reader=$(grep -lE "^#include [<\"]([^>\"]*/)?${name//./\\.}[>\"]" "${compiled[@]}" | head -n 1 || true)
      if [ -n "$reader" ]; then sources+=("$reader"); else echo "lint.sh: left out $file: no compiled source includes it itself" >&2; fi
      ;;
    *)
      if [ -n "${is_compiled[$file]:-}" ]; then sources+=("$file"); else echo "lint.sh: left out $file: $build does not compile it" >&2; fi
      ;;
  esac
done
if [ ${#sources[@]} -eq 0 ]; then
  echo "lint.sh: no source to check"
  exit 0
fi
mapfile -t sources < <(printf '%s\n' "${sources[@]}" | sort -u)

# The commands are GCC's: -w leaves the compiler's own warnings to it, the findings of the checks stay.
if printf '%s\0' "${sources[@]}" |
  xargs -0 -n 1 -P "$jobs" "$tool" -p "$build" --quiet --extra-arg=-w '--warnings-as-errors=*'; then
  echo "lint.sh: ${#sources[@]} sources are clean"
else
  echo "lint.sh: findings in the ${#sources[@]} sources above" >&2
  exit 1
fi
