#!/usr/bin/env bash
# make_venv.sh PYTHON DIR: a fresh virtual environment in DIR, with a pip that knows dependency
# groups.  Debian keeps ensurepip and Python.h in packages of their own; root gets them installed.
set -euo pipefail
python=${1:?python} dir=${2:?directory}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    found=$("$python" --version 2>/dev/null) || found=missing
    echo "Python 3.11 or newer is needed: $python is $found; name another: PYTHON=python3.12" >&2
    exit 1
fi

missing() {
    ! "$python" - <<'PY'
import ensurepip, os, sysconfig
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
PY
}

if missing 2>/dev/null; then
    name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "$python needs its venv module and headers: $name-venv $name-dev" >&2
        exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install -y "$name-venv" "$name-dev"
    missing && { echo "$python is still without venv or Python.h" >&2; exit 1; }
fi

rm -rf "$dir"
"$python" -m venv "$dir"
"$dir/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'
