#!/usr/bin/env bash
# Borrowed names: those of docs/results/conformance.md that are refused end with exit code 2 and say what to use; where torch, torchvision
# and timm are installed, scripts/conformance.py compares all of them again and finds the verdicts of the page.
. "$1/tests/support/check.sh"
page=$source_dir/docs/results/conformance.md

refused=0
while read -r flag value; do
    refused=$((refused + 1))
    "$towers" train fashion_cnn --dataset synthetic --dry-run "$flag" "${value:-1}" >"$out" 2>"$err" </dev/null
    code=$?
    [ $code = 2 ] || complain "$flag: exit $code instead of 2"
    grep -qF -- "$(grep -F "| \`$flag${value:+ $value}\` |" "$page" | sed 's/.* | //; s/ |$//')" <(tr / '|' <"$err"; cat "$err") ||
        complain "$flag: the page says something else than: $(cat "$err")"
done < <(sed -n 's/^| `\([^`]*\)` | [^|]* | refused | .*/\1/p' "$page")
[ $refused -ge 4 ] || complain "$page has $refused refused names"

# Each alias of an option or of a choice, and each recipe of others, has a row.
rows=$(sed -n 's/^| \([^|]*`[^|]*\) | .*/\1/p' "$page")
aliases=$(sed -nE 's/^OPTION_.*[.]aliases = "([^"]*)".*/\1/p' "$source_dir/inception/options/options.def" | tr , '\n' | sed 's/^/--/'
    sed -nE 's/^CHOICE_ALIAS\("([^"]*)", "([^"]*)".*/\1 \2/p' "$source_dir/inception/options/options.def")
recipes=$(cd "$source_dir/inception/recipes" && printf '%s\n' *.yaml | sed 's/[.]yaml//' | grep -vxE 'mini|photos|finetune|none')
[[ $(wc -l <<<"$aliases") -ge 50 && $(wc -l <<<"$recipes") -ge 9 ]] || complain "the aliases or recipes are not found: $aliases $recipes"
while read -r flag choice; do # sched poly: --sched poly or --lr-scheduler poly
    grep -qE -- "${choice:+[a-z] }$(sed 's/-/[_-]/g' <<<"${choice:-$flag}")[\` ]" <<<"$rows" || complain "$page has no row of $flag $choice"
done <<<"$aliases"
for recipe in $recipes; do
    grep -qF "\`--recipe $recipe\`" <<<"$rows" || complain "$page has no row of the recipe $recipe"
done

python_with() { # MODULES: sets python to one that has them, or to nothing
    for python in "${TORCH_PYTHON:-}" "${XDG_CACHE_HOME:-$HOME/.cache}/towers/torch/bin/python" python3 ''; do
        [ -z "$python" ] || ! "$python" -c "import $1" 2>/dev/null || return 0
    done
}
export PYTHONDONTWRITEBYTECODE=1
python_with 'torch, torchvision, timm, PIL'
if [ -n "$python" ]; then
    "$python" "$source_dir/scripts/conformance.py" --check "$towers" "$page" >"$out" 2>"$err" || complain "$(grep WRONG "$out"; cat "$err")"
else
    left_out "borrowed names against the packages: no Python with torch, torchvision and timm"
fi

# The critic that Towers is timed beside scores real and generated images in one pass, too, after those of the penalty.
python_with torch
if [ -n "$python" ]; then
    (cd "$source_dir/scripts" && "$python" -) >"$out" 2>"$err" <<'PYTHON' || complain "bench_wgan.py: $(tail -n 1 "$err")"
import argparse, io, sys
import bench_wgan
images, networks = [], bench_wgan.networks
def counted(*arguments):
    generator, critic = networks(*arguments)
    critic.register_forward_pre_hook(lambda _, given: images.append(len(given[0])))
    return generator, critic
bench_wgan.networks, sys.stdin = counted, io.StringIO()
options = argparse.Namespace(updates=1, threads=1, processor_time=False)
sys.argv = [*bench_wgan.peer_command("torch", 1, 1, options)[1:], "--batch", "3", "--serve"]  # as Server starts it
bench_wgan.main()
assert images[:4] == [3, 6, 3, 6], images
PYTHON
else
    left_out "the critic that is timed beside Towers: no Python with torch"
fi
check_end "borrowed names do what they do elsewhere, or are refused"
