#!/usr/bin/env bash
# Prints the path of the first usable Python among the given versions, in their order of preference:
#     scripts/find_python.sh 3.11 3.10 3.12 3.13
# PYTHON=/path/to/python overrides the search. Usable means: it runs (a pyenv shim of a version that is
# not active does not), its version is one of those given, and it can make environments.
set -euo pipefail

usable() { # usable CANDIDATE VERSION...: prints the interpreter behind the candidate, or fails
    "$1" - "${@:2}" 2>/dev/null <<'PROBE'
import sys

if "%d.%d" % sys.version_info[:2] not in sys.argv[1:]:
    sys.exit(1)
import ensurepip, venv

print(getattr(sys, "_base_executable", None) or sys.executable)
PROBE
}

if [ -n "${PYTHON:-}" ]; then
    usable "$PYTHON" "$@" && exit 0
    echo "PYTHON=$PYTHON does not run, is none of Python $*, or lacks venv and ensurepip" >&2
    exit 1
fi
home=${HOME:-/nonexistent}
for version in "$@"; do
    for candidate in "python$version" python3 python \
        "${PYENV_ROOT:-$home/.pyenv}/versions/$version"*/bin/python \
        "$home/.pyenv/versions/$version"*/bin/python; do
        usable "$candidate" "$version" && exit 0
    done
done
echo "no usable Python $* here: install one with its venv module" \
    "(Debian: apt install python3.11-venv), or name one: PYTHON=/path/to/python" >&2
exit 1
