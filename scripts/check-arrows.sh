#!/usr/bin/env bash
# Checks by its includes that knowledge flows one way: plugins -> core headers <- app, and that each third-party library has
# one home, so that it can be exchanged and never shows in a public header.
#   scripts/check-arrows.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
failed=0
count=0

complain() {
  echo "$1"
  failed=1
}

# where_is HEADER FROM_DIR FOLDER...: true if the quoted header exists beside the file, or in one of the include folders.
where_is() {
  local header=$1 from=$2 folder
  shift 2
  [ ! -e "$from/$header" ] || return 0
  for folder in "$@"; do
    [ ! -e "$folder/$header" ] || return 0
  done
  return 1
}

# Homes of third-party headers: pattern of the header, pattern of the files that may include it, what to use instead.
homes=(
  '^boost/dll'         '^core/src/plugin/library\.cpp$'             'the plugin host in core (core/src/plugin/library.cpp) alone uses Boost.DLL'
  '^mpi\.h$'                      '^core/src/comm/'                            'use espalier::Communicator'
  '^toml\+\+/'                    '^app/config/'                               'use the ConfigView that app/config makes'
  '^CLI/'                         '^app/'                                      'the command line is read in one file of app/'
  '^spdlog/'                      '^(core/src/|app/telemetry/log\.cpp$)'            'log through espalier::log or HostContext'
  '^(cuda|cublas|cudnn|nccl|curand|nvtx|nvToolsExt|driver_types)' '^plugins/kernels_fused/cuda/' 'CUDA lives in plugins/kernels_fused/cuda'
  '^(oneapi/dnnl/|dnnl)'          '^plugins/kernels_fused/'                    'oneDNN lives in plugins/kernels_fused'
)
command_line_files=()

check() {
  local file=$1 line=$2 open=$3 header=$4
  local at="$file:$line" from=${file%/*} plugin i
  count=$((count + 1))

  # The part of the tree that the file belongs to, and what it may name in quotes.
  if [[ $open == '"' || $header == espalier/* ]]; then
    case "$file" in
      core/include/*)
        [[ $header == espalier/build_id.hpp ]] || where_is "$header" /nowhere core/include ||
          complain "$at: a public header includes \"$header\", which is no public header (core/include)"
        ;;
      testing/*)
        where_is "$header" core/include testing/include ||
          complain "$at: a conformance suite includes \"$header\": it may use <espalier/...> only"
        ;;
      core/*)
        [[ $header == espalier/build_id.hpp ]] || where_is "$header" "$from" core/include core/src ||
          complain "$at: core includes \"$header\" from outside core: it knows neither app nor plugins"
        ;;
      app/*)
        [[ $header == espalier/build_id.hpp ]] || where_is "$header" "$from" core/include app || { [[ $header == app/* ]] && [ -e "$header" ]; } ||
          complain "$at: app includes \"$header\": it may use its own headers and <espalier/...>, and meets plugins through interfaces"
        ;;
      plugins/*)
        plugin=${file#plugins/}
        plugin=plugins/${plugin%%/*}
        [[ $header == espalier/build_id.hpp ]] ||
          where_is "$header" "$from" core/include "$plugin" "$plugin/src" "$plugin/cpu" "$plugin/cpu/src" "$plugin/cuda" "$plugin/cuda/src" ||
          complain "$at: a plugin includes \"$header\": it may use its own headers and <espalier/...>, never app or another plugin"
        ;;
    esac
  fi
  if [[ $header == *../* ]]; then
    complain "$at: \"$header\" climbs out of its folder: name the header from an include folder"
  fi

  for ((i = 0; i < ${#homes[@]}; i += 3)); do
    if [[ $open == '<' && $header =~ ${homes[i]} && ! $file =~ ${homes[i + 1]} ]]; then
      complain "$at: <$header> does not belong here: ${homes[i + 2]}"
    fi
  done
  [[ $header != CLI/* ]] || command_line_files+=("$file")

  # Public headers show the C++ library and Espalier only; the conformance suites may use GoogleTest.
  if [[ $file =~ ^(core|testing)/include/ && $open == '<' && $header != espalier/* && ! $header =~ ^[a-z_0-9]+$ ]]; then
    [[ $file == testing/* && $header =~ ^g(test|mock)/ ]] ||
      complain "$at: a public header shows <$header>: only the C++ library and <espalier/...> may appear in one"
  fi
}

folders=()
for folder in core testing app plugins; do
  [ ! -d "$folder" ] || folders+=("$folder")
done
pattern='^([^:]+):([0-9]+):[[:space:]]*#[[:space:]]*include[[:space:]]*([<"])([^>"]+)[>"]'
while IFS= read -r hit; do
  if [[ $hit =~ $pattern ]]; then
    check "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}" "${BASH_REMATCH[4]}"
  fi
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include' "${folders[@]}" \
  --include='*.hpp' --include='*.cpp' --include='*.h' --include='*.inc' --include='*.cu' --include='*.cuh')

if [ ${#command_line_files[@]} -gt 0 ] && [ "$(printf '%s\n' "${command_line_files[@]}" | sort -u | wc -l)" -gt 1 ]; then
  complain "CLI11 is included by several files (it is slow to compile; one is enough): $(printf '%s\n' "${command_line_files[@]}" | sort -u | paste -sd' ')"
fi
if [ "$count" -eq 0 ]; then
  complain "no include found below $PWD: wrong folder?"
fi
echo "checked $count includes"
exit "$failed"
