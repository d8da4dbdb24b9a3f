#!/usr/bin/env bash
# header_hash_test.sh CMAKE CMAKE_DIR: comments and white space leave the identity of the headers alone, anything else changes it.
set -euo pipefail
cmake=$1 dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/include"
echo "$work/include/x.hpp" >"$work/list"
failed=0

hash_of() {
  cat >"$work/include/x.hpp"
  "$cmake" "-DHEADERS=$work/list" "-DROOT=$work/include" "-DTEMPLATE=$dir/build_id.hpp.in" "-DOUTPUT=$work/build_id.hpp" \
    -P "$dir/header_hash.cmake"
  sed -nE 's/^#define ESPALIER_HEADER_HASH "(.*)"$/\1/p' "$work/build_id.hpp"
}

plain=$(hash_of <<'END'
const char* a = "http://x\"//y";
char b = '"';
int c = 1'000 / 2;
END
)
[[ $plain =~ ^[0-9a-f]{16}$ ]] || { echo "no hash: '$plain'"; exit 1; }

commented=$(hash_of <<'END'
// don't stop at a quote
/* x *//* y ** "z" */
const char*   a = "http://x\"//y";  // "open
/* several
   lines ' */ char b = '"';
int c
  = 1'000 / 2; //
END
)
[ "$plain" = "$commented" ] || { echo "a comment changed the hash"; failed=1; }

literal=$(hash_of <<'END'
const char* a = "http://x\"//z";
char b = '"';
int c = 1'000 / 2;
END
)
[ "$plain" != "$literal" ] || { echo "a changed literal left the hash alone"; failed=1; }

code=$(hash_of <<'END'
const char* a = "http://x\"//y";
char b = '"';
int c = 1'000 / 3;
END
)
[ "$plain" != "$code" ] || { echo "changed code left the hash alone"; failed=1; }
exit "$failed"
