#!/usr/bin/env bash
# run_tests.sh PYTEST [ARGUMENT...]: run pytest.  In CI up to three tests that failed are run once
# more, by themselves: there a process may stand still for longer than a test can wait.  Those that
# pass then are named at the end; each of them is a test, or a fault, to look at.
set -euo pipefail
pytest=${1:?pytest}
shift

status=0
"$pytest" --cache-clear "$@" || status=$?
if [ "$status" -ne 1 ] || [ -z "${CI:-}" ]; then
    exit "$status"
fi
failed=$("${pytest%pytest}python" - <<'END'
import json
from pathlib import Path

print(*json.loads(Path(".pytest_cache/v/cache/lastfailed").read_text()), sep="\n")
END
)
if [ "$(wc -l <<<"$failed")" -gt 3 ]; then
    exit 1
fi
echo "== once more:" "$failed"
"$pytest" --last-failed --last-failed-no-failures none "$@"
echo "== failed once, and passed when run once more:" "$failed"
