#!/usr/bin/env bash
# checks_can_fail.sh SCRIPTS: plants one violation at a time in a small tree; check-arrows.sh and check-sizes.sh must name its file.
set -euo pipefail
scripts=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

fresh_tree() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/core/include/espalier "$tree"/core/src/comm "$tree"/app/config "$tree"/plugins/a/src "$tree"/plugins/b/src
  echo '#include <vector>' >"$tree/core/include/espalier/x.hpp"
  echo '#include "espalier/x.hpp"' >"$tree/core/src/comm/mpi.cpp"
  echo '#include <mpi.h>' >>"$tree/core/src/comm/mpi.cpp"
  echo '#include <espalier/x.hpp>' >"$tree/app/main.cpp"
  echo '#include "espalier/x.hpp"' >"$tree/plugins/a/src/a.cpp"
  : >"$tree/app/app.hpp"
  : >"$tree/plugins/b/src/b.hpp"
}

expect_clean() {
  fresh_tree
  if ! bash "$scripts/check-arrows.sh" "$tree" || ! bash "$scripts/check-sizes.sh" "$tree"; then
    echo "a clean tree was refused"
    failed=1
  fi
}

# expect_refusal CHECK FILE LINE: LINE, added to FILE, is refused by CHECK with the file's name.
expect_refusal() {
  local said
  fresh_tree
  printf '%s\n' "$3" >>"$tree/$2"
  if said=$(bash "$scripts/$1" "$tree") || ! grep -qF "$2" <<<"$said"; then
    echo "$1 did not refuse '$3' in $2: $said"
    failed=1
  fi
}

expect_clean
expect_refusal check-arrows.sh plugins/a/src/a.cpp '#include "app.hpp"'
expect_refusal check-arrows.sh plugins/a/src/a.cpp '#include "../../b/src/b.hpp"'
expect_refusal check-arrows.sh plugins/a/src/a.cpp '#include "b.hpp"'
expect_refusal check-arrows.sh plugins/a/src/a.cpp '#include "plugins/b/src/b.hpp"'
expect_refusal check-arrows.sh plugins/a/src/a.cpp '#include <mpi.h>'
expect_refusal check-arrows.sh plugins/a/src/a.cpp '  #  include <spdlog/spdlog.h>'
expect_refusal check-arrows.sh app/main.cpp '#include "plugins/b/src/b.hpp"'
expect_refusal check-arrows.sh app/main.cpp '#include "comm/mpi.hpp"'
expect_refusal check-arrows.sh app/main.cpp '#include <toml++/toml.h>'
expect_refusal check-arrows.sh app/main.cpp '#include <boost/dll.hpp>'
expect_refusal check-arrows.sh core/src/comm/mpi.cpp '#include "app/app.hpp"'
expect_refusal check-arrows.sh core/src/comm/mpi.cpp '#include <boost/dll/shared_library.hpp>'
expect_refusal check-arrows.sh core/include/espalier/x.hpp '#include <mpi.h>'
expect_refusal check-arrows.sh core/include/espalier/x.hpp '#include <fmt/format.h>'
expect_refusal check-arrows.sh core/include/espalier/x.hpp '#include "comm/mpi.hpp"'
expect_refusal check-sizes.sh app/main.cpp "$(yes '// line' | head -n 700)"
expect_refusal check-sizes.sh core/src/comm/mpi.cpp "$(yes '// line' | head -n 6000)"
exit "$failed"
