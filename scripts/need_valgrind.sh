#!/usr/bin/env bash
# need_valgrind.sh: exit code 0 where valgrind and its header are, installed by root on Debian.
# Without them 1 in CI, and 3, which skips, elsewhere.
set -euo pipefail

missing() {
    ! command -v valgrind >/dev/null || [ ! -e /usr/include/valgrind/callgrind.h ]
}

missing || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update && apt-get install -y valgrind || true
fi
missing || exit 0
echo "instructions: needs valgrind and valgrind/callgrind.h (Debian: valgrind)" >&2
[ -n "${CI:-}" ] && exit 1
echo "instructions: SKIPPED, nothing was counted" >&2
exit 3
