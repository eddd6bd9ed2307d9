#!/usr/bin/env bash
# Make a virtual environment with the packages of scripts/requirements/NAME.txt, whose hashes pip compares, in the user's cache, and print
# the path of its Python. It is made anew when that file changes; several calls at once wait for each other.
# usage: scripts/venv.sh NAME [OPTION of python3 -m venv]...
# Most files are written by: pip-compile --generate-hashes --strip-extras --no-annotate --allow-unsafe (pip-tools; Python 3.11)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }

"$(dirname "$0")/setup.sh" venv >&2
list=$(cd "$(dirname "$0")" && pwd)/requirements/$1.txt venv=${XDG_CACHE_HOME:-$HOME/.cache}/towers/$1
python=${TOWERS_SYSTEM_PYTHON:-/usr/bin/python3}
[ -x "$python" ] || python=python3
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
if ! cmp -s "$list" "$venv/requirements.txt"; then
    echo "getting $(sed -n 's/^\([^ #-][^ ]*\)==.*/\1/p' "$list" | head -n 4 | paste -sd ' ') ... from PyPI into $venv" >&2
    rm -rf "$venv"
    "$python" -m venv "${@:2}" "$venv" >&2
    "$venv/bin/python" -m pip install -q --no-deps --require-hashes -r "$list" >&2
    cp "$list" "$venv/requirements.txt"
fi
echo "$venv/bin/python"
