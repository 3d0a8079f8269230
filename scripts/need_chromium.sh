#!/usr/bin/env bash
# need_chromium.sh: exit code 0 where Debian's chromium is, installed by root on Debian.
# Without it 1 in CI, and 3, which skips the page's test, elsewhere.
set -euo pipefail

missing() {
    ! command -v chromium >/dev/null
}

missing || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install -y --no-install-recommends chromium; } >&2 || true
fi
missing || exit 0
echo "the page is tested in chromium (Debian: chromium), which is not there" >&2
[ -n "${CI:-}" ] && exit 1
exit 3
