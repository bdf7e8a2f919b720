#!/usr/bin/env bash
# Makes or refreshes a development environment:
#     scripts/make_venv.sh VENV VERSION...
# The versions are in their order of preference. Nothing is done where the environment was made from
# the same setup.py and constraints by the interpreter that would be chosen now; the stamp that says so
# is written last, so an interrupted installation is never taken for a finished one.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
shift
python=$(scripts/find_python.sh "$@")
version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
case $version in
    3.10.* | 3.11.*) constraints=constraints/tf215.txt ;;
    *) constraints=constraints/tf2x.txt ;;
esac
stamp=$venv/.made-from
# The interpreter is in the stamp by version: where it is installed does not matter.
wanted=$({ echo "$version"; cat setup.py "$constraints" "$0"; } | "$python" -c \
    'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')

if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    echo "$venv: Python $version, up to date" >&2
    exit 0
fi
echo "$venv: Python $version ($python), versions from $constraints; half a minute to five" >&2
rm -f "$stamp"
made=$("$venv/bin/python" -c 'import pip, sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true)
[ "$made" = "$version" ] || "$python" -m venv --clear "$venv"
packages=(--constraint "$constraints" --editable ".[all,dev,docs]")
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
# uv takes a third of pip's time, but does not read pip's configuration: an index that is set there,
# as behind a company's proxy, is for pip. (`grep -q` would close the pipe, and pip fail.)
if "${pip[@]}" config list | grep index >/dev/null || ! "${pip[@]}" install --quiet uv ||
    ! "$venv/bin/python" -m uv pip install --python "$venv/bin/python" "${packages[@]}"; then
    "${pip[@]}" install "${packages[@]}"
fi
"$venv/bin/python" -m pip check
echo "$wanted" >"$stamp"
