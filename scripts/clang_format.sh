#!/usr/bin/env bash
# Runs clang-format 14, the version that this project's sources are formatted with: other versions format them otherwise.
# Looks for clang-format-14, for a clang-format of that version, and for what scripts/setup.sh has put into the user's cache.
# Exits 77 if there is none. Arguments are those of clang-format.
set -euo pipefail

for program in clang-format-14 clang-format "${XDG_CACHE_HOME:-$HOME/.cache}/towers/clang-format/bin/clang-format"; do
    found=$("$program" --version 2>/dev/null) || continue
    case $found in *'version 14.'*) exec "$program" "$@" ;; esac
    others+=" $(grep -o 'version [0-9.]*' <<<"$found" || true)"
done
echo "SKIPPED: clang-format 14 is not here${others:+ (only$others)}; \`scripts/setup.sh test\` gets it" >&2
exit 77
