#!/usr/bin/env bash
# build_wheel.sh PYTHON MODE TREE OUT: copy what a wheel is made of from TREE and build it in the
# copy, in OUT/tree, so that nothing an earlier build left can get into it.  The wheel is OUT/*.whl;
# MODE "dist" makes an sdist and the wheel from it, with no tools but the compiler's on the path;
# "coverage" builds in place in OUT/tree/src, and "plants" is "faults" with the known defects of
# tests/faults/plants in the copy.
set -euo pipefail
python=$(realpath -s "${1:?python}") mode=${2:?mode} tree=${3:?tree} out=${4:?out}

rm -rf "$out"
mkdir -p "$out/tree"
(cd "$tree" && tar -cf - --exclude='*.so' --exclude='*.c' --exclude=__pycache__ \
    --exclude='*.egg-info' pyproject.toml setup.py README.md LICENSE src docs/rmqstore.1) |
    tar -xf - -C "$out/tree"
if [ "$mode" = plants ]; then
    "$tree/scripts/plant.sh" "$out/tree"
    mode=faults
fi
if [ "$mode" = dist ]; then
    mkdir "$out/compiler"
    used=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("CC").split()[0])')
    for tool in cc gcc "$used" as ld; do
        ! path=$(command -v "$tool") || ln -sf "$path" "$out/compiler/"
    done
    PATH=$(realpath "$out/compiler") "$python" -m build --outdir "$out" "$out/tree"
elif [ "$mode" = coverage ]; then
    (cd "$out/tree" && RMQSTORE_BUILD=coverage "$python" setup.py --quiet build_ext --inplace)
else
    if ! RMQSTORE_BUILD=$mode "$python" -m pip wheel --quiet --no-deps -w "$out" "$out/tree" \
        2>"$out/errors"; then
        cat "$out/errors" >&2
        ! grep -q 'No matching distribution' "$out/errors" ||
            echo "a build needs a package index, or PIP_FIND_LINKS, for setuptools and Cython" >&2
        exit 1
    fi
fi
