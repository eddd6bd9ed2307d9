#!/usr/bin/env bash
# Borrowed names: those of docs/results/conformance.md that are refused end with exit code 2 and say what to use; where torch, torchvision
# and timm are installed, scripts/parity/conformance.py compares all of them again and finds the verdicts of the page, and weights that timm
# has saved give its probabilities.
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

kept=${XDG_CACHE_HOME:-$HOME/.cache}/towers
python_with() { # MODULES [PYTHON]...: sets python to one that has them, or to nothing
    for python in "${TORCH_PYTHON:-}" "$kept/torch/bin/python" "${@:2}" python3 ''; do
        [ -z "$python" ] || ! "$python" -c "import $1" 2>/dev/null || return 0
    done
}
export PYTHONDONTWRITEBYTECODE=1
python_with 'torch, torchvision, timm, PIL'
if [ -n "$python" ]; then
    "$python" "$source_dir/scripts/parity/conformance.py" --check "$towers" "$page" >"$out" 2>"$err" || complain "$(grep WRONG "$out"; cat "$err")"
else
    left_out "borrowed names against the packages: no Python with torch, torchvision and timm"
fi

# Published weights by any torchvision and timm, whose tables say more of them than their own names.
python_with 'torch, torchvision, timm' "$kept/timm/bin/python"
if [ -n "$python" ]; then
    "$python" "$source_dir/scripts/parity/conformance.py" --weights "$towers" "$page" >"$out" 2>"$err" || complain "$(grep WRONG "$out"; cat "$err")"
    [ "$(grep -c '^| `--pretrained ' "$out")" = "$(grep -c '"model":' "$source_dir/inception/models/weights.json")" ] || complain "a row of weights.json was not compared: $(cat "$out")"
else
    left_out "published weights against the packages: no Python with torch, torchvision and timm"
fi

# Weights as timm saves them, of networks that only timm has, and of one that both have.
python_with 'torch, timm, PIL' "$kept/timm/bin/python" # which scripts/parity/fidelity.sh has installed
if [ -n "$python" ]; then
    cat >"$work/saves.py" <<'PYTHON'
import sys, numpy, timm, torch
from PIL import Image
name, folder = sys.argv[1:]
torch.manual_seed(7)
network = timm.create_model(name, num_classes=5)
for module in network.modules():
    if isinstance(module, torch.nn.BatchNorm2d):
        module.running_mean.normal_(0, 0.1)
        module.running_var.uniform_(0.5, 1.5)
network.get_classifier().weight.data.normal_(0, 0.1)  # so that images differ
torch.save(network.state_dict(), f"{folder}/{name}.pth")
pixels = numpy.random.default_rng(3).integers(0, 256, (139, 139, 3), dtype=numpy.uint8)
Image.fromarray(pixels).save(f"{folder}/pixels.png")
images = (torch.tensor(pixels).double().permute(2, 0, 1)[None] / 255 - 0.5) / 0.5
with torch.no_grad():
    print(network.double().eval()(images).softmax(1)[0].tolist())
PYTHON
    for name in inception_v4 inception_resnet_v2 resnet18; do
        "$python" "$work/saves.py" $name "$work" >"$work/wanted" 2>"$err" || complain "timm's $name: $(tail -n 1 "$err")"
        "$towers" predict $name --weights "$work/$name.pth" "$work/pixels.png" --device cpu --img-size 139 --eval-resize 139 --classes 5 \
            --mean 0.5,0.5,0.5 --std 0.5,0.5,0.5 --json >"$out" 2>"$err" || complain "$name with timm's weights: $(tail -n 1 "$err")"
        python3 -c '
import json, sys
wanted, found = json.load(open(sys.argv[1])), {p["class"]: p["probability"] for p in json.load(open(sys.argv[2]))["predictions"]}
assert max(abs(found[k] / p - 1) for k, p in enumerate(wanted)) < 3e-6, (wanted, found)' "$work/wanted" "$out" 2>"$err" || complain "$name: $(tail -n 1 "$err")"
        rm -f "$work/$name.pth"
    done
else
    left_out "weights that timm has saved: no Python with torch and timm"
fi

# The critic that Towers is timed beside scores real and generated images in one pass, too, after those of the penalty.
python_with torch
if [ -n "$python" ]; then
    (cd "$source_dir/scripts/measure" && "$python" -) >"$out" 2>"$err" <<'PYTHON' || complain "bench_wgan.py: $(tail -n 1 "$err")"
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
