#!/usr/bin/env bash
# Installs what building and testing need, from Debian's packages (Debian 12 is what is tested). Does nothing when all are there.
#   scripts/install-deps.sh            install what is missing
#   scripts/install-deps.sh --list     print the packages and stop
set -euo pipefail

packages=(
  # tools
  g++ cmake ninja-build pkg-config ccache git
  # scripts/corpus.sh
  python3
  # libraries of core and app
  mpich libmpich-dev libboost-dev libcli11-dev libtomlplusplus-dev libspdlog-dev libfmt-dev nlohmann-json3-dev
  libxxhash-dev libzstd-dev zlib1g-dev
  # tokenizers: split patterns, normal forms of Unicode, SentencePiece models
  libpcre2-dev libutf8proc-dev libsentencepiece-dev
  # plugin kernels_fused; the CMake files of oneDNN ask for OpenCL
  libdnnl-dev ocl-icd-opencl-dev
  # tests and benchmarks; fibers of Boost.Context are the threads of emulated CUDA kernels; shellcheck reads the scripts
  libgtest-dev libgmock-dev libbenchmark-dev libboost-context-dev shellcheck
)

if [ "${1:-}" = --list ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
elif [ $# -gt 0 ]; then
  echo "install-deps.sh: unknown argument '$1' (known: --list)" >&2
  exit 2
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install-deps.sh: no apt-get here. Install the counterparts of these Debian 12 packages by hand, then build with CMake:" >&2
  printf '  %s\n' "${packages[@]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "install-deps.sh: all ${#packages[@]} packages are installed"
  exit 0
fi
echo "install-deps.sh: installing ${missing[*]}"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-deps.sh: needs root. Run as root: apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

# A mirror may fail for a moment, and an old package list names files that are gone: update and try again.
for attempt in 1 2 3; do
  if apt update && apt install -y --no-install-recommends "${missing[@]}"; then
    exit 0
  fi
  echo "install-deps.sh: attempt $attempt of 3 failed" >&2
  [ "$attempt" -eq 3 ] || sleep $((attempt * 10))
done
echo "install-deps.sh: could not install ${missing[*]}; the messages of apt-get above say why" >&2
exit 1
