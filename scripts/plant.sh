#!/usr/bin/env bash
# plant.sh TREE: put the known defects of tests/faults/plants into TREE, a copy of the sources; each
# is in force while RMQ_PLANT names it.
set -euo pipefail
tree=$(realpath "${1:?tree}") patches=$(realpath "$(dirname "$0")/../tests/faults/plants")

if [ -e "$tree/.git" ]; then
    echo "$tree is no copy: it is under version control" >&2
    exit 1
fi
cd "$tree"
# A copy below the repository must not count as a part of it: git apply would silently skip
# paths that are not the repository's.
unset GIT_DIR GIT_WORK_TREE
export GIT_CEILING_DIRECTORIES=${tree%/*}
for patch in "$patches"/*.patch; do
    if ! git apply --whitespace=nowarn "$patch"; then
        echo "tests/faults/plants/${patch##*/} does not apply to the sources any more" >&2
        exit 1
    fi
done
