#!/usr/bin/env bash
# Run clang-format 14, the version that formats this project's sources; other versions give different results. Looks for
# clang-format-14, a clang-format of that version, and the copy that scripts/setup.sh puts into the user's cache. Exits 77 if there
# is none. Arguments are passed on.
set -euo pipefail

for program in clang-format-14 clang-format "${XDG_CACHE_HOME:-$HOME/.cache}/towers/clang-format/bin/clang-format"; do
    found=$("$program" --version 2>/dev/null) || continue
    case $found in *'version 14.'*) exec "$program" "$@" ;; esac
    others+=" $(grep -o 'version [0-9.]*' <<<"$found" || true)"
done
echo "SKIPPED: clang-format 14 is not installed${others:+ (only$others)}; \`scripts/setup.sh test\` installs it" >&2
exit 77
