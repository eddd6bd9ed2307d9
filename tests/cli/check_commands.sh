#!/usr/bin/env bash
# What the program says of its commands and options is said once: the pages in docs/commands have what it prints today, `towers help
# OPTION`, the page and the manual have the same words, `towers help COMMAND` is `towers COMMAND --help`, and a word that it does not know
# is refused with what is near. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
export TOWERS=$towers COLUMNS=80
pages=$source_dir/scripts/pages/command_pages.sh

"$pages" --check >"$out" 2>&1 || complain "$(cat "$out")"

# pages that are older than the program, that are missing, and that no command has
found() { # TEXT
    "$pages" --check "$work/docs" >"$out" 2>&1 && complain "passes, though it should say: $1"
    grep -qF -- "$1" "$out" || complain "wanted '$1', got: $(cat "$out")"
    rm -r "$work/docs"
    cp -r "$source_dir/docs" "$work/docs"
}
cp -r "$source_dir/docs" "$work/docs"
sed -i 's/half a cosine/a third of a cosine/' "$work/docs/commands/train.md" && found "-- \`cosine\`: a third of a cosine"
sed -i 's/number of timed steps/number of steps/' "$work/docs/options.md" && found "options.md"
sed -i 's/^| 3 | .*/| 3 | bad luck |/' "$work/docs/exit-codes.md" && found "-| 3 | bad luck |"
sed -i '/<!-- head: end/d' "$work/docs/commands/runs.md" && found "has no section 'head'"
rm "$work/docs/commands/card.md" && found "towers card has no page"
cp "$work/docs/commands/card.md" "$work/docs/commands/paint.md" && found "paint.md is of no command"
sed -i 's/half a cosine/a third of a cosine/' "$work/docs/commands/train.md"
"$pages" "$work/docs" && cmp -s "$work/docs/commands/train.md" "$source_dir/docs/commands/train.md" || complain "a page is not written anew"

# the same words in a terminal, on the page and in the manual; the row of --help begins what `towers help` says
words() { tr -s '[:space:]' ' '; }
plain() { sed 's/\\-/-/g; s/\\\([*_<>#|]\)/\1/g; s/^\.[A-Z][A-Za-z]* *//' | words; }
for flag in sched opt loss towers batch-size crop; do
    "$towers" help $flag >"$work/help" || complain "towers help $flag"
    "$towers" help --$flag | cmp -s - "$work/help" || complain "towers help --$flag says something else"
    more=$(awk -v RS= 'NR > 1' "$work/help" | sed '/^Goes with it/,$d; /^Example/,$d; s/^  \([a-z0-9-]*\) */\1 /' | words)
    "$towers" man train --markdown | sed 's/^- `\([a-z0-9-]*\)`:/\1/' | plain >"$work/page"
    "$towers" man train | plain >"$work/man"
    for place in page man; do
        while read -r sentence; do
            grep -qF -- "$sentence" "$work/$place" || complain "towers help $flag: not in the $place: $sentence"
        done < <(sed 's/\. \([A-Z]\)/.\n\1/g' <<<"${more% }")
    done
done
for flag in sched opt towers data-path; do
    row=$("$towers" train --help | awk -v flag="--$flag" '$1 == flag { on = 1; print; next } on && /^ {20}/ { print; next } { on = 0 }' |
        words | sed -E 's/^ --[a-z-]+ [A-Z|]+ //')
    "$towers" help $flag | words | grep -qF -- ": ${row% }" || complain "towers train --help says of --$flag: $row"
done

for command in $("$towers" man --markdown | sed -n 's/^| \[`towers .*](commands\/\([a-z-]*\)\.md).*/\1/p'); do
    "$towers" help "$command" >"$out" || complain "towers help $command"
    "$towers" "$command" --help | cmp -s - "$out" || complain "towers $command --help is not towers help $command"
done

# aliases, letters, flags of others; and words that mean nothing
"$towers" help lr-scheduler | cmp -s - <("$towers" help sched) || complain "an alias is not explained"
[[ $("$towers" help -o | grep -c '^-o, ') == 2 ]] || complain "a letter of two options: $("$towers" help -o)"
refuses 2 "did you mean 'towers help sched'?" "$towers" help schd
refuses 2 "did you mean 'towers help train'?" "$towers" help trian
refuses 2 "near it: --calibrate, --decay-rate, --learning-rate" "$towers" help rate
refuses 2 "'cosine' is a value of --sched; 'towers help sched' explains it" "$towers" help cosine
refuses 2 "'resnet18' is a model; 'towers info resnet18' describes it" "$towers" help resnet18
refuses 2 "'qqqqqq' is neither a command nor an option ('towers help' lists" "$towers" help qqqqqq
refuses 2 "unknown command 'nothing'" "$towers" man nothing

check_end "commands and options are explained in one place"
