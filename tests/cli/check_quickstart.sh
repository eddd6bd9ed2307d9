#!/usr/bin/env bash
# What the README shows of scripts/quickstart.sh is what the program prints: the same lines, but for numbers. Numbers, names and times of the
# README are of a run on all of Fashion-MNIST, these of a small part. usage: check_quickstart.sh SOURCE_FOLDER BINARY
. "$1/tests/support/check.sh"
small_data data 600 200

# The command is quickstart's last line, without bf16, which does not change what is printed.
command=$(tail -n 1 "$source_dir/scripts/quickstart.sh")
[[ $command == 'exec build/towers train inception_mini --towers 2 "${amp[@]}" "$@"' ]] || complain "quickstart.sh ends with: $command"
"$towers" train inception_mini --towers 2 --data-path data >out 2>err </dev/null || complain "quickstart: $(tail -n 3 err)"

masked() { sed -E 's/[0-9]+([.:-][0-9]+)*/N/g'; }
shown=$(awk '/^```/ { if (found) exit; inside = !inside; next } inside && /^Epoch 1, Loss/ { found = 1 } found' "$source_dir/README.md" | masked)
printed=$(cat out err | grep -E '^(Epoch|test accuracy|run directory runs|report)' | masked)
[[ $(wc -l <<<"$shown") -ge 4 ]] || complain "the README shows: $shown"
diff <(sort -u <<<"$shown") <(sort -u <<<"$printed") >difference || complain "the README and the program differ: $(cat difference)"
check_end "the README shows what quickstart.sh prints"
