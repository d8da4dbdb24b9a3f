#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
! git grep -nE '#include "(app|plugins|\.\./\.\.)/' -- core plugins
