#!/usr/bin/env bash
# cmake --install puts the program, its manual page and the completions of three shells into the standard places.
# usage: check_install.sh SOURCE_FOLDER BINARY
set -uo pipefail
build=$(dirname "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "check_install: $*" >&2
    exit 1
}

cmake --install "$build" --prefix "$work" >"$work/log" 2>&1 || fail "$(tail -5 "$work/log")"
[[ $("$work/bin/towers" version) == towers\ * ]] || fail "the installed program does not run"
cudnn=$(sed -n 's|^CUDNN_LIBRARY:FILEPATH=\(/.*\)/.*|\1|p' "$build/CMakeCache.txt")
if readelf -d "$2" | grep -q libcudnn && [[ $cudnn != /usr/lib/* ]]; then
    readelf -d "$work/bin/towers" | grep -q "R.*PATH.*$cudnn" || fail "the installed program does not look for libraries in $cudnn"
fi
for file in man/man1/towers.1 bash-completion/completions/towers zsh/site-functions/_towers \
    fish/vendor_completions.d/towers.fish doc/towers/LICENSE; do
    [[ -s $work/share/$file ]] || fail "share/$file is missing or empty: $(cat "$work/log")"
done
cmp -s "$work/share/man/man1/towers.1" <("$2" man) || fail "the manual page is not the program's"
pages=0
for command in $("$2" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]\{1,\}\) .*/\1/p; /^Commands:/,/^$/s/^  \([a-z-]\{1,\}\)$/\1/p'); do
    cmp -s "$work/share/man/man1/towers-$command.1" <("$2" man "$command") || fail "man towers-$command is not the program's"
    [[ -s $work/share/doc/towers/docs/commands/$command.md ]] || fail "towers $command has no page in share/doc/towers"
    pages=$((pages + 1))
done
((pages >= 15)) || fail "towers --help names only $pages commands"
if command -v groff >/dev/null; then
    for page in "$work"/share/man/man1/*.1; do
        warnings=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
        [[ -z $warnings ]] || fail "$(basename "$page"): $warnings"
    done
fi
bash -c '. "$1" && complete -p towers' _ "$work/share/bash-completion/completions/towers" >/dev/null ||
    fail "bash does not take its completion"
echo ok
